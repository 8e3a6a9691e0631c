//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// TestA7Lifetime: what the guest is told lives for a minute whatever upstream
// says, and the address it was told stands for that name as long as the sandbox
// does, so that no answer outlives its permission.
func TestA7Lifetime(t *testing.T) {
	ns := newNameserver(t, byType([]dnsmessage.ResourceBody{a4(1)}, nil)) // with a lifetime of 1 second
	s := testServer(t, "a.example", "*.w.example")
	s.upstream.dial, s.upstream.report = ns.dial, func(wire.Exchange) {}
	first := s.handleOf(t, "a.example")
	for i := range 100 {
		s.handleOf(t, fmt.Sprintf("x%d.w.example", i))
	}
	for range 3 {
		if got := s.handleOf(t, "a.example"); got != first {
			t.Errorf("a.example was %s and is %s", first, got)
		}
	}
	// Where the name is now is asked when it is dialled, and again when that is old.
	if got, why := s.upstream.addrsOf(t, "a.example", false); got != "192.0.2.1" {
		t.Errorf("%q, %s", got, why)
	}
	ns.become(byType([]dnsmessage.ResourceBody{a4(2)}, nil))
	s.upstream.kept[look{nameOf(t, "a.example"), dnsmessage.TypeA}].until = time.Now().Add(-time.Nanosecond)
	if got, why := s.upstream.addrsOf(t, "a.example", false); got != "192.0.2.2" {
		t.Errorf("after it moved: %q, %s", got, why)
	}
}

// handleOf asks for a name's address, as the guest does; its lifetime is ours.
func (s *server) handleOf(t *testing.T, name string) string {
	t.Helper()
	q, err := assemble("Q @" + name + " A IN")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.decide(wire.Query{Message: q})
	var m dnsmessage.Message
	if err := m.Unpack(a.Message); err != nil || len(m.Answers) != 1 || m.Answers[0].Header.TTL != 60 || a.TTL != 60 {
		t.Fatalf("%s: %+v, %v", name, m, err)
	}
	return a.Handle.String()
}

// TestA9Clocks: an answer is too old when either clock says so: the one that
// stands still while the host sleeps, or the one that can be set.
func TestA9Clocks(t *testing.T) {
	ns := newNameserver(t, byType([]dnsmessage.ResourceBody{a4(1)}, nil))
	u, _ := upstreamOf(ns)
	u.addrsOf(t, "a.example", false)
	f := u.kept[look{nameOf(t, "a.example"), dnsmessage.TypeA}]
	now := time.Now()
	for _, c := range []struct {
		what        string
		until, wall time.Duration // from now
		over        bool
	}{
		{"both to come", time.Second, time.Second, false},
		{"the host slept for eight hours", 29 * time.Second, -8 * time.Hour, true},
		{"the clock was set back by an hour", -time.Second, time.Hour, true},
		{"both past", -time.Second, -time.Second, true},
		{"just not yet", 1, 1, false},
	} {
		f.until, f.wall = now.Add(c.until), now.Add(c.wall).Round(0)
		if f.over(now) != c.over {
			t.Errorf("%s: too old: %v", c.what, !c.over)
		}
	}
	before := ns.total()
	f.until, f.wall = now.Add(time.Hour), now.Add(-time.Hour).Round(0)
	if got, _ := u.addrsOf(t, "a.example", false); got != "192.0.2.1" || ns.total() == before {
		t.Errorf("%q, asked %d times more", got, ns.total()-before)
	}
}

// TestA10Alias: an alias gives the name that was asked for no other name: what
// the gate is told is that name's addresses, and an alias without end is none.
func TestA10Alias(t *testing.T) {
	alias := func(to string) dnsmessage.ResourceBody {
		return &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(to)}
	}
	inside := &dnsmessage.AResource{A: [4]byte{10, 0, 0, 5}}
	for _, c := range []struct {
		what   string
		answer func(*nameserver, asked)
		want   string
		why    reason.Code
	}{
		{"of another name", byType([]dnsmessage.ResourceBody{alias("denied.example."), a4(3)}, nil), "192.0.2.3", reason.AllowRule},
		{"into a private network", byType([]dnsmessage.ResourceBody{alias("inside.corp.example."), inside}, nil), "10.0.0.5", reason.AllowRule}, // the gate judges that
		{"of itself", byType([]dnsmessage.ResourceBody{alias("a.example.")}, []dnsmessage.ResourceBody{alias("a.example.")}), "", reason.NoSuchName},
		{"of a loop", byType([]dnsmessage.ResourceBody{alias("b.example."), alias("a.example.")}, nil), "", reason.NoSuchName},
		{"of nothing", byType([]dnsmessage.ResourceBody{alias("b.example.")}, nil), "", reason.NoSuchName},
	} {
		t.Run(c.what, func(t *testing.T) {
			ns := newNameserver(t, c.answer)
			u, r := upstreamOf(ns)
			if got, why := u.addrsOf(t, "a.example", false); got != c.want || why != c.why {
				t.Errorf("%q, %s; want %q, %s", got, why, c.want, c.why)
			}
			for q := range ns.asked {
				if !strings.HasPrefix(q, "a.example. ") {
					t.Errorf("it was asked for %s", q)
				}
			}
			r.agrees(t, ns, 0)
		})
	}
	// The denied name itself is asked for by nobody.
	s := testServer(t, "a.example", "!denied.example")
	expect(t, s, "Q @denied.example A IN", "nxdomain deny deny-rule denied.example a")
	expect(t, s, "Q @a.example 0005 IN", "noerror deny dns-type a.example cname")
}

// TestA26ManyAddresses: of a name with thousands of addresses a few are taken, and
// other names go on being found.
func TestA26ManyAddresses(t *testing.T) {
	var many []dnsmessage.ResourceBody
	for i := range 4000 {
		many = append(many, &dnsmessage.AResource{A: [4]byte{192, 0, byte(i >> 8), byte(i)}})
	}
	ns := newNameserver(t, func(ns *nameserver, q asked) {
		switch {
		case q.q.Type != dnsmessage.TypeA:
			q.reply(q.msg(dnsmessage.RCodeSuccess, false))
		case !strings.HasPrefix(q.q.Name.String(), "many."):
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, a4(7)))
		case !q.tcp:
			q.reply(q.msg(dnsmessage.RCodeSuccess, true))
		default:
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, many...))
		}
	})
	u, _ := upstreamOf(ns)
	f, why := u.find(context.Background(), look{nameOf(t, "many.example"), dnsmessage.TypeA}, false)
	if why != reason.AllowRule || len(f.addrs) != wire.MaxAddrs {
		t.Errorf("%d addresses, %s", len(f.addrs), why)
	}
	for i := range 50 {
		if got, why := u.addrsOf(t, fmt.Sprintf("x%d.example", i), false); got != "192.0.2.7" {
			t.Fatalf("x%d: %q, %s", i, got, why)
		}
	}
}
