//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// TestA20Budget: names that the guest made up under a wildcard are resolved as far
// as the budget goes; names that a rule has are.
func TestA20Budget(t *testing.T) {
	s := testServer(t, "*.w.example", "a.example")
	ns := newNameserver(t, byType([]dnsmessage.ResourceBody{a4(1)}, nil))
	s.upstream.dial, s.upstream.report = ns.dial, func(wire.Exchange) {}
	ok := 0
	for i := range 200 {
		name := fmt.Sprintf("x%d.w.example", i)
		if _, why := s.upstream.addrsOf(t, name, s.rules.Load().Budgeted(nameOf(t, name))); why == reason.AllowRule {
			ok++
		} else if why != reason.ResolveBudget {
			t.Fatalf("%s: %s", name, why)
		}
	}
	if ok != newPerMinute || ns.total() != 2*newPerMinute {
		t.Errorf("%d names were resolved by %d questions", ok, ns.total())
	}
	if _, why := s.upstream.addrsOf(t, "a.example", s.rules.Load().Budgeted(nameOf(t, "a.example"))); why != reason.AllowRule {
		t.Errorf("a name of a rule's own: %s", why)
	}
	if _, why := s.upstream.addrsOf(t, "x1.w.example", true); why != reason.AllowRule {
		t.Errorf("a name that is known: %s", why)
	}
}

func TestBudget(t *testing.T) {
	long := nameOf(t, strings.Repeat("a", 60)+"."+strings.Repeat("b", 60)+".example")
	now := time.Now()
	var b budget
	count := func(n rule.Name, at time.Time, tries int) (ok int) {
		for range tries {
			if b.take(n, false, at) {
				ok++
			}
		}
		return ok
	}
	short := nameOf(t, "a.example")
	if n := count(short, now, 100); n != newPerMinute {
		t.Errorf("%d in a minute", n)
	}
	if n := count(short, now.Add(59*time.Second), 100); n != 0 {
		t.Errorf("%d more in the same minute", n)
	}
	if n := count(short, now.Add(time.Minute), 100); n != newPerMinute {
		t.Errorf("%d in the next minute", n)
	}
	total := 2 * newPerMinute
	for i := 2; i < 60; i++ {
		total += count(short, now.Add(time.Duration(i)*time.Minute), 100)
	}
	if total != newPerHour {
		t.Errorf("%d in an hour", total)
	}
	b = budget{}
	octets := 0
	for i := range 60 {
		octets += count(long, now.Add(time.Duration(i)*time.Minute), 100) * len(long.String())
	}
	if octets > octetsPerHr || octets < octetsPerHr-len(long.String()) {
		t.Errorf("%d octets in an hour", octets)
	}
	if n := count(long, now.Add(time.Hour), 1); n != 1 {
		t.Error("none in the next hour")
	}
	again := 0
	for range 2 * againPerHour {
		if b.take(short, true, now.Add(time.Hour+time.Minute)) {
			again++
		}
	}
	if again != againPerHour {
		t.Errorf("names are asked for again %d times in an hour", again)
	}
	if n := count(short, now.Add(time.Hour+time.Minute), 1); n != 1 {
		t.Error("no new name beside them")
	}
	if !b.take(short, true, now.Add(2*time.Hour)) {
		t.Error("none again in the next hour")
	}
}

// age makes every answer too old.
func (u *upstream) age() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.kept {
		<-f.done
		f.until = time.Now().Add(-time.Nanosecond)
	}
}

// TestA20Again: each time that a made-up name is asked for tells its zone
// something, so that too is counted; sixty of them may be asked for each minute,
// and names that a rule has always.
func TestA20Again(t *testing.T) {
	ns := newNameserver(t, byType([]dnsmessage.ResourceBody{a4(1)}, nil))
	u, _ := upstreamOf(ns)
	const names, minutes = 60, 70
	u.addrsOf(t, "a.example", false)
	for minute := range minutes {
		for i := range names {
			_, why := u.addrsOf(t, fmt.Sprintf("x%d.w.example", i), true)
			if over := minute > 60; over && why != reason.ResolveBudget || !over && why != reason.AllowRule {
				t.Fatalf("minute %d: %s", minute, why)
			}
		}
		u.age()
	}
	if got, want := ns.total(), 2*(1+names+againPerHour); got != want { // A and AAAA
		t.Errorf("the nameserver was asked %d times, not %d", got, want)
	}
	if _, why := u.addrsOf(t, "a.example", false); why != reason.AllowRule {
		t.Errorf("a name of a rule's own: %s", why)
	}
	u.budget.hour = u.budget.hour.Add(-time.Hour)
	if _, why := u.addrsOf(t, "x1.w.example", true); why != reason.AllowRule {
		t.Errorf("in the next hour: %s", why)
	}
}

// A made-up name is asked for at most once a minute, whether there is one or not.
func TestA20Kept(t *testing.T) {
	ns := newNameserver(t, func(ns *nameserver, q asked) {
		if strings.HasPrefix(q.q.Name.String(), "bad") {
			code(dnsmessage.RCodeNameError)(ns, q)
			return
		}
		byType([]dnsmessage.ResourceBody{a4(1)}, nil)(ns, q)
	})
	u, _ := upstreamOf(ns)
	now := time.Now()
	for _, name := range []string{"good.w.example", "bad.w.example"} {
		u.addrsOf(t, name, true)
		f := u.kept[look{nameOf(t, name), dnsmessage.TypeA}]
		if f.over(now.Add(keepBudgeted-time.Second)) || !f.over(now.Add(keepBudgeted+10*time.Second)) {
			t.Errorf("%s is kept until %v, it is %v", name, f.until, now)
		}
	}
}
