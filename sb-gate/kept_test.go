//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"sb/lib/rule"
)

// Where a name is is asked once for connections that come together; what the
// rules say of it, for each.
func TestKept(t *testing.T) {
	s := start(t, "a.example", "b.example")
	s.dns.mu.Lock()
	s.dns.ttl = 30
	s.dns.mu.Unlock()
	w := s.site("a.example", 443, drain)
	s.site("b.example", 443, drain)
	s.hello("b.example")
	at := netip.AddrPortFrom(s.handle("a.example"), 443)
	before := s.dns.looked.Load()
	began := time.Now()
	for range 3 {
		s.hello("a.example")
	}
	asked := s.dns.looked.Load() - before
	if most := 1 + int64(time.Since(began)/keepTime); asked < 1 || asked > most || w.visits() != 3 {
		t.Errorf("%d visits, asked %d times where the name is, want at most %d", w.visits(), asked, most)
	}
	s.rules(2, "b.example")
	s.refusedAt(at)
	s.hasN(1, "deny tcp a.example * no-allow-rule -")
}

func TestKeptBounds(t *testing.T) {
	name := func(i int) rule.Name {
		n, err := rule.ParseName(fmt.Sprintf("n%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	k := kept{byName: map[rule.Name]keptAddrs{}}
	addrs, now := []netip.Addr{netip.MustParseAddr("45.67.0.1")}, time.Now()
	for _, c := range []struct {
		ttl, age time.Duration
		known    bool
	}{
		{time.Hour, keepTime - 1, true}, {time.Hour, keepTime, false},
		{keepTime / 2, keepTime/2 - 1, true}, {keepTime / 2, keepTime / 2, false}, {0, 0, false},
	} {
		k.put(name(0), addrs, c.ttl, now)
		if got := k.get(name(0), now.Add(c.age)) != nil; got != c.known {
			t.Errorf("good for %v, after %v: known %v", c.ttl, c.age, got)
		}
	}
	for i := range 3 * maxKept {
		k.put(name(i), addrs, time.Hour, now)
		if k.get(name(i), now) == nil {
			t.Fatalf("name %d is not known", i)
		}
		if len(k.byName) > maxKept {
			t.Fatalf("%d names are kept", len(k.byName))
		}
	}
}
