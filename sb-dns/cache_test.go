//go:build linux

package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// TestCache: a name is asked for once at a time, and once for a while; also one
// that failed, for a shorter one.
func TestCache(t *testing.T) {
	release := make(chan struct{})
	ns := newNameserver(t, func(_ *nameserver, q asked) {
		<-release
		if strings.HasPrefix(q.q.Name.String(), "bad") {
			q.reply(q.msg(dnsmessage.RCodeNameError, false))
			return
		}
		byType([]dnsmessage.ResourceBody{a4(1)}, nil)(nil, q)
	})
	u, r := upstreamOf(ns)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got, why := u.addrsOf(t, "a.example", false); got != "192.0.2.1" {
				t.Errorf("%q, %s", got, why)
			}
		})
	}
	within(t, "it is asked", func() bool { return ns.total() >= 1 })
	close(release)
	all.Wait()
	u.addrsOf(t, "a.example", false)
	if n := ns.total(); n != 2 {
		t.Errorf("the nameserver was asked %d times, not once for each family", n)
	}
	for range 3 {
		if _, why := u.addrsOf(t, "bad.example", false); why != reason.NoSuchName {
			t.Errorf("%s", why)
		}
	}
	if n := ns.total(); n != 4 {
		t.Errorf("the nameserver was asked %d times in all", n)
	}
	now := time.Now()
	good, bad := u.kept[look{nameOf(t, "a.example"), dnsmessage.TypeA}], u.kept[look{nameOf(t, "bad.example"), dnsmessage.TypeA}]
	if !bad.over(now.Add(keepFailed+time.Second)) || good.over(now.Add(keepFailed+time.Second)) || !good.over(now.Add(keepFound+time.Second)) {
		t.Error("they are kept for other times than they should")
	}
	good.until = now.Add(-time.Second)
	u.addrsOf(t, "a.example", true) // known, so it is no new name of the budget
	if n := ns.total(); n != 6 || u.budget.inHour != 0 || u.budget.again != 1 {
		t.Errorf("asked %d times in all, %+v of the budget", n, &u.budget)
	}
	r.agrees(t, ns, 0)
	for i := range 2 * maxKept {
		u.mu.Lock()
		u.keep(look{nameOf(t, fmt.Sprintf("x%d.example", i)), dnsmessage.TypeA}, &found{done: make(chan struct{})})
		u.mu.Unlock()
	}
	if len(u.kept) > maxKept {
		t.Errorf("%d names are kept", len(u.kept))
	}
}

// The looks at a time are bounded; who waits too long for one gets no answer.
func TestSlots(t *testing.T) {
	t.Parallel()
	ns := newNameserver(t, byType([]dnsmessage.ResourceBody{a4(1)}, nil))
	u, _ := upstreamOf(ns)
	for range maxLooks {
		u.slots <- struct{}{}
	}
	began := time.Now()
	if _, why := u.addrsOf(t, "a.example", false); why != reason.NoAnswer || ns.total() != 0 {
		t.Errorf("%s, asked %d times", why, ns.total())
	}
	if took := time.Since(began); took > lookTime+time.Second {
		t.Errorf("it took %v", took)
	}
	<-u.slots
	if got, why := u.addrsOf(t, "b.example", false); got != "192.0.2.1" {
		t.Errorf("%q, %s", got, why)
	}
}

// TestOther: TXT, MX and SRV records, only where a rule opens them, rebuilt from
// what was read, cut to what the asker takes.
func TestOther(t *testing.T) {
	text := strings.Repeat("0123456789", 60)
	ns := newNameserver(t, func(_ *nameserver, q asked) {
		switch q.q.Type {
		case dnsmessage.TypeTXT:
			bodies := []dnsmessage.ResourceBody{&dnsmessage.TXTResource{TXT: []string{text[:255], text[255:510], text[510:]}}}
			if q.q.Name.String() == "many.example." {
				for range 30 {
					bodies = append(bodies, bodies[0])
				}
			}
			if !q.tcp && len(bodies) > 1 {
				q.reply(q.msg(dnsmessage.RCodeSuccess, true))
				return
			}
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, bodies...))
		case dnsmessage.TypeMX:
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, &dnsmessage.MXResource{Pref: 7, MX: dnsmessage.MustNewName("mail.example.")}))
		case dnsmessage.TypeSRV:
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, &dnsmessage.SRVResource{Priority: 1, Weight: 2, Port: 3, Target: dnsmessage.MustNewName("db.example.")}))
		}
	})
	s := testServer(t, "dns:txt.example", "dns:many.example", "dns:*.gone.example", "plain.example")
	r := &reports{}
	s.upstream.dial, s.upstream.report = ns.dial, r.add
	ask := func(name string, typ dnsmessage.Type, stream bool, more string) (dnsmessage.Message, wire.Answer) {
		t.Helper()
		head := "Q"
		if more != "" {
			head = "QE"
		}
		q, err := assemble(fmt.Sprintf("%s @%s %04x IN %s", head, name, uint16(typ), more))
		if err != nil {
			t.Fatal(err)
		}
		a, rest := s.decide(wire.Query{Message: q, Stream: stream})
		if rest != nil {
			rest(&a)
		}
		var m dnsmessage.Message
		if err := m.Unpack(a.Message); err != nil {
			t.Fatalf("%s: % x: %v", name, a.Message, err)
		}
		return m, a
	}
	m, a := ask("txt.example", dnsmessage.TypeTXT, true, "")
	if len(m.Answers) != 1 || strings.Join(m.Answers[0].Body.(*dnsmessage.TXTResource).TXT, "") != text || !a.Allow || a.Rule != "dns:txt.example" {
		t.Errorf("txt: %+v %+v", m, a)
	}
	m, _ = ask("txt.example", dnsmessage.TypeTXT, false, "") // 600 bytes, and the asker takes 512
	if len(m.Answers) != 0 || !m.Truncated || m.RCode != 0 {
		t.Errorf("txt over UDP: %+v", m)
	}
	m, _ = ask("txt.example", dnsmessage.TypeTXT, false, "OPT:4096")
	if len(m.Answers) != 1 || m.Truncated {
		t.Errorf("txt over UDP with EDNS: %+v", m)
	}
	m, _ = ask("txt.example", dnsmessage.TypeTXT, false, "OPT:600")
	if len(m.Answers) != 0 || !m.Truncated {
		t.Errorf("txt over UDP with EDNS of 600: %+v", m)
	}
	m, a = ask("many.example", dnsmessage.TypeTXT, true, "")
	if len(m.Answers) < 5 || len(a.Message) > wire.MaxMessage || m.Truncated {
		t.Errorf("many over TCP: %d answers in %d bytes", len(m.Answers), len(a.Message))
	}
	if m, _ = ask("txt.example", dnsmessage.TypeMX, false, ""); len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.MXResource).MX.String() != "mail.example." {
		t.Errorf("mx: %+v", m)
	}
	if m, _ = ask("txt.example", dnsmessage.TypeSRV, false, ""); len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.SRVResource).Port != 3 {
		t.Errorf("srv: %+v", m)
	}
	before := ns.total()
	if m, a = ask("plain.example", dnsmessage.TypeTXT, false, ""); len(m.Answers) != 0 || a.Allow || a.Reason != reason.DNSType {
		t.Errorf("without a dns: rule: %+v %+v", m, a)
	}
	if m, a = ask("denied.example", dnsmessage.TypeTXT, false, ""); m.RCode != dnsmessage.RCodeNameError || a.Allow {
		t.Errorf("denied: %+v %+v", m, a)
	}
	ask("txt.example", dnsmessage.TypeTXT, true, "") // known
	if ns.total() != before {
		t.Errorf("the nameserver was asked %d times for these", ns.total()-before)
	}
	ns.become(code(dnsmessage.RCodeNameError))
	if m, a = ask("x.gone.example", dnsmessage.TypeTXT, false, ""); m.RCode != dnsmessage.RCodeNameError || a.Allow || a.Reason != reason.NoSuchName {
		t.Errorf("no such name: %+v %+v", m, a)
	}
	ns.become(code(dnsmessage.RCodeServerFailure))
	if m, a = ask("y.gone.example", dnsmessage.TypeTXT, false, ""); m.RCode != dnsmessage.RCodeServerFailure || a.Allow || a.Reason != reason.NoAnswer {
		t.Errorf("no answer: %+v %+v", m, a)
	}
	for i := range 100 { // the budget holds for these, too
		if _, a = ask(fmt.Sprintf("z%d.gone.example", i), dnsmessage.TypeTXT, false, ""); a.Reason == reason.ResolveBudget {
			return
		}
	}
	t.Error("100 new names under a wildcard were asked for")
}
