package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
)

// hoardSize is how much a page has that the guest asks for and does not read.
const hoardSize = 4 << 20

// hoard opens n connections, and then asks over each for a large page that the
// guest never reads. When the gate holds no more of them, the guest closes them
// and makes an honest one.
func hoard(r *report, n int) error {
	l, err := newGuestLab("*.example.org")
	if err != nil {
		return err
	}
	defer l.close()
	cmd := l.inGuest("hoard", fmt.Sprint(n))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	defer in.Close()
	var asked int
	if _, err := fmt.Fscanf(out, "asked %d\n", &asked); err != nil {
		return fmt.Errorf("the guest did not ask: %w", err)
	}
	peak := l.fullest()
	in.Close()
	var honest float64
	if _, err := fmt.Fscanf(out, "honest %f\n", &honest); err != nil {
		return fmt.Errorf("an honest connection: %w", err)
	}
	cut, err := l.cut()
	if err != nil {
		return err
	}
	fmt.Printf("  %.0f connections were reset for what was held\n", cut)
	r.line("pages that were asked for and not read", float64(asked), 0.9*float64(n), "", "at least", float64(asked) >= 0.9*float64(n))
	limit, soon := 256.0, 5000.0
	if n > 1000 {
		limit, soon = 640, 30_000 // a gate that has to reset thousands is busy with it
	}
	r.most("the most resident memory", peak/1024, limit, "MiB")
	r.most("until an honest connection has its page, afterwards", honest, soon, "ms")
	return nil
}

// fullest waits until the gate's memory grows no more, and returns the most that
// it was, in KiB.
func (l *lab) fullest() (peak float64) {
	since := time.Now()
	for end := since.Add(time.Minute); time.Since(since) < 2*time.Second && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, now := memory(l.gate); now > peak {
			peak, since = now, time.Now()
		}
	}
	return peak
}

// cut counts the connections that were reset or refused for their memory.
func (l *lab) cut() (n float64, err error) {
	lines, err := l.log()
	for _, line := range lines {
		if line.Reason == reason.MemoryBudget && (line.Verdict == audit.Close || line.Verdict == audit.Deny) {
			n += float64(line.Count())
		}
	}
	return n, err
}

// hoardFlows opens N connections, asks, and reads nothing, until stdin ends.
func hoardFlows(args []string) (map[string]float64, error) {
	const name = "hoard.example.org"
	web, err := resolve(name)
	if err != nil {
		return nil, err
	}
	all := make([]*held, number(args[0]))
	each(len(all), 8, func(i int) {
		c, err := net.DialTimeout("tcp", web+":80", 20*time.Second)
		if err != nil {
			return
		}
		// A small window, so that it is the gate that holds the page.
		c.(*net.TCPConn).SetReadBuffer(4096)
		h := &held{c: c, name: name}
		h.start()
		if h.use() {
			all[i] = h
		}
	})
	asked := 0
	for _, h := range all {
		if h != nil {
			asked++
			fmt.Fprintf(h.c, "GET /?size=%d HTTP/1.1\r\nHost: %s\r\n\r\n", hoardSize, name)
		}
	}
	fmt.Printf("asked %d\n", asked)
	<-stdinEnds()
	for _, h := range all {
		if h != nil {
			h.c.Close()
		}
	}
	began := time.Now()
	for !honest(web, name) {
		if time.Since(began) > 30*time.Second {
			return nil, errors.New("none in half a minute")
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Printf("honest %d\n", time.Since(began).Milliseconds())
	return nil, nil
}

// honest fetches a page over a connection of its own.
func honest(addr, name string) bool {
	c, err := net.DialTimeout("tcp", addr+":80", 20*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	h := &held{c: c, name: name}
	h.start()
	return h.use()
}
