package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/testscripts/world"
)

// wild is the wildcard under which the guest makes names up.
const wild = ".wild.example.org"

// queries asks n questions: for names that are allowed, 30 % denied, and 30 % for
// made-up names under a wildcard. Nothing is asked outside for it. Then the
// made-up names are dialled.
func queries(r *report, n int) error {
	l, err := newGuestLab("good.example.org", "*"+wild)
	if err != nil {
		return err
	}
	defer l.close()
	before, err := world.Look()
	if err != nil {
		return err
	}
	// The first tenth fills what may be filled.
	if _, err := l.askGuest("ask", "0", fmt.Sprint(n/10)); err != nil {
		return err
	}
	_, gateThen := memory(l.gate)
	_, dnsThen := memory(l.dns)
	began := time.Now()
	got, err := l.askGuest("ask", fmt.Sprint(n/10), fmt.Sprint(n))
	if err != nil {
		return err
	}
	fmt.Printf("  %.0f a second; %.0f made-up names had an address, %.0f none any more\n", float64(n-n/10)/time.Since(began).Seconds(), got["wild"], got["spent"])
	r.same("questions answered", got["asked"], float64(n-n/10))
	r.same("wrong verdicts", got["wrong"], 0)
	_, gateNow := memory(l.gate)
	_, dnsNow := memory(l.dns)
	r.most("growth of the gate after the first tenth", (gateNow-gateThen)/1024, 16, "MiB")
	r.most("growth of sb-dns after the first tenth", (dnsNow-dnsThen)/1024, 16, "MiB")
	r.most("the most resident memory of the gate", gateNow/1024, 256, "MiB")
	after, err := world.Look()
	if err != nil {
		return err
	}
	if !maps.Equal(before.Queries, after.Queries) {
		r.fail("the host's resolver was asked: %v", after.Queries)
	}
	return dialled(r, l, n, before)
}

// dialled dials made-up names, each once, and counts what that asks outside, after
// what was seen there before.
func dialled(r *report, l *lab, n int, before world.Seen) error {
	began := time.Now()
	got, err := l.askGuest("dial", fmt.Sprint(min(n, 20_000)))
	if err != nil {
		return err
	}
	minutes := int(time.Since(began).Minutes()) + 1
	seen, err := world.Look()
	if err != nil {
		return err
	}
	asked := 0
	for name := range seen.Queries {
		if strings.HasSuffix(name, wild) && before.Queries[name] == 0 {
			asked++
		}
	}
	fmt.Printf("  %.0f made-up names dialled, %.0f connected\n", got["dialled"], got["connected"])
	r.line("made-up names asked for outside", float64(asked), 1, "", "at least", asked >= 1)
	r.most("made-up names asked for outside", float64(asked), float64(60*(minutes+1)), "")
	r.same("connected, of those asked for", got["connected"], float64(asked))
	questions, looks := 0.0, 0.0
	for name, n := range seen.Queries {
		questions += float64(n - before.Queries[name])
	}
	// The last lines are written a moment later.
	for end := time.Now().Add(10 * time.Second); looks != questions && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if looks, err = l.looks(); err != nil {
			return err
		}
	}
	r.same("questions outside that the log lists", looks, questions)
	return nil
}

// looks counts the questions to the host's resolver that the log lists.
func (l *lab) looks() (n float64, err error) {
	lines, err := l.log()
	for _, line := range lines {
		if line.Gate == audit.Look {
			n++
		}
	}
	return n, err
}

// madeUp is the i-th made-up name: 30 % of the questions.
func madeUp(i int) string { return fmt.Sprintf("%x%s", uint32(i)*2654435761, wild) }

// askQueries asks the questions FROM to TO and checks each answer.
func askQueries(args []string) (map[string]float64, error) {
	from, to := number(args[0]), number(args[1])
	c := &checker{byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{}}
	const batch, workers = 32, 8
	var failed error
	each((to-from+batch-1)/batch, workers, func(i int) {
		first := from + i*batch
		if err := c.ask(first, min(first+batch, to)); err != nil {
			c.mu.Lock()
			failed = errors.Join(failed, err)
			c.mu.Unlock()
		}
	})
	return map[string]float64{"asked": c.asked, "wrong": c.wrong, "wild": c.wild, "spent": c.spent}, failed
}

// checker knows what the answers have been.
type checker struct {
	mu                        sync.Mutex
	byName                    map[string]netip.Addr
	byAddr                    map[netip.Addr]string
	asked, wrong, wild, spent float64
}

// nameOf is the name of the i-th question.
func nameOf(i int) string {
	switch {
	case i%10 < 3:
		return madeUp(i)
	case i%10 < 6:
		return fmt.Sprintf("x%d.evil.example", i)
	}
	return "good.example.org"
}

// ask sends a few questions at once and waits for all answers; what is lost is
// asked again.
func (c *checker) ask(from, to int) error {
	conn, err := net.Dial("udp", gatewayDNS)
	if err != nil {
		return err
	}
	defer conn.Close()
	waiting := map[uint16]string{}
	for i := from; i < to; i++ {
		waiting[uint16(i)] = nameOf(i)
	}
	buf := make([]byte, 1500)
	for try := 0; len(waiting) > 0; try++ {
		if try == 20 {
			return fmt.Errorf("%d questions have no answer", len(waiting))
		}
		for id, name := range waiting {
			q, err := question(id, name)
			if err != nil {
				return err
			}
			conn.Write(q)
		}
		conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		for len(waiting) > 0 {
			n, err := conn.Read(buf)
			if err != nil {
				break
			}
			id, name, addr, err := read1(buf[:n])
			if err != nil {
				return err
			}
			if waiting[id] == name {
				delete(waiting, id)
				c.check(name, addr)
			}
		}
	}
	return nil
}

// check decides whether an answer is right: denied names have no address, allowed
// ones always the same that no other has; made-up ones the same, or none when
// there are no more.
func (c *checker) check(name string, a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	isWild := strings.HasSuffix(name, wild)
	good := name == "good.example.org" || isWild
	if a.IsValid() && isWild {
		c.wild++
	}
	switch {
	case !a.IsValid() && isWild:
		c.spent++
	case a.IsValid() != good:
		c.report(name, a)
	case good:
		if old, ok := c.byName[name]; ok && old != a {
			c.report(name, a)
		}
		if other, ok := c.byAddr[a]; ok && other != name {
			c.report(name, a)
		}
		c.byName[name], c.byAddr[a] = a, name
	}
}

func (c *checker) report(name string, a netip.Addr) {
	if c.wrong++; c.wrong < 10 {
		fmt.Fprintln(os.Stderr, "wall: wrong:", name, a)
	}
}

// dialNames dials made-up names.
func dialNames(args []string) (map[string]float64, error) {
	n := number(args[0])
	var mu sync.Mutex
	dialled, connected := 0.0, 0.0
	each(n, 16, func(i int) {
		if i%10 >= 3 {
			return
		}
		addr, err := resolve(madeUp(i))
		if err != nil {
			return
		}
		c, err := net.DialTimeout("tcp", addr+":80", 20*time.Second)
		mu.Lock()
		defer mu.Unlock()
		dialled++
		if err == nil {
			c.Close()
			connected++
		}
	})
	return map[string]float64{"dialled": dialled, "connected": connected}, nil
}
