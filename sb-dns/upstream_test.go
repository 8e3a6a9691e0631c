//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// upstreamOf is an upstream whose nameserver is ns.
func upstreamOf(ns *nameserver) (*upstream, *reports) {
	r := &reports{}
	u := newUpstream(r.add)
	u.dial = ns.dial
	return u, r
}

func nameOf(t testing.TB, s string) rule.Name {
	t.Helper()
	n, err := rule.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (u *upstream) addrsOf(t testing.TB, name string, budgeted bool) (string, reason.Code) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	f, why := u.find(ctx, look{nameOf(t, name), dnsmessage.TypeA}, budgeted)
	if f == nil {
		return "", why
	}
	var all []string
	for _, a := range f.addrs {
		all = append(all, a.Unmap().String())
	}
	slices.Sort(all)
	return strings.Join(all, " "), why
}

// byType answers each type with its own.
func byType(v4, v6 []dnsmessage.ResourceBody) func(*nameserver, asked) {
	return func(_ *nameserver, q asked) {
		switch q.q.Type {
		case dnsmessage.TypeA:
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, v4...))
		case dnsmessage.TypeAAAA:
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, v6...))
		default:
			q.reply(q.msg(dnsmessage.RCodeSuccess, false))
		}
	}
}

func code(c dnsmessage.RCode) func(*nameserver, asked) {
	return func(_ *nameserver, q asked) { q.reply(q.msg(c, false)) }
}

// TestAddresses: both families, as they are, and how each failure is told apart.
func TestAddresses(t *testing.T) {
	alias := &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("other.example.")}
	var many []dnsmessage.ResourceBody
	for i := range 100 {
		many = append(many, a4(byte(i)))
	}
	for _, c := range []struct {
		what   string
		answer func(*nameserver, asked)
		want   string
		why    reason.Code
	}{
		{"both families", byType([]dnsmessage.ResourceBody{a4(1), a4(2)}, []dnsmessage.ResourceBody{a6(1)}), "192.0.2.1 192.0.2.2 2001:db8::1", reason.AllowRule},
		{"one family", byType([]dnsmessage.ResourceBody{a4(1)}, nil), "192.0.2.1", reason.AllowRule},
		{"the other", byType(nil, []dnsmessage.ResourceBody{a6(1)}), "2001:db8::1", reason.AllowRule},
		{"an alias", byType([]dnsmessage.ResourceBody{alias, a4(3)}, nil), "192.0.2.3", reason.AllowRule},
		{"no records", byType(nil, nil), "", reason.NoSuchName},
		{"no such name", code(dnsmessage.RCodeNameError), "", reason.NoSuchName},
		{"a failing server", code(dnsmessage.RCodeServerFailure), "", reason.NoAnswer},
		{"a refusing server", code(dnsmessage.RCodeRefused), "", reason.NoAnswer},
	} {
		t.Run(c.what, func(t *testing.T) {
			ns := newNameserver(t, c.answer)
			u, r := upstreamOf(ns)
			got, why := u.addrsOf(t, "a.example", false)
			if got != c.want || why != c.why {
				t.Errorf("%q, %s; want %q, %s", got, why, c.want, c.why)
			}
			r.agrees(t, ns, 0)
			for _, x := range r.all {
				if x.Name != "a.example" || x.Server == "" || x.Reason != reason.Done {
					t.Errorf("%+v", x)
				}
			}
		})
	}
	ns := newNameserver(t, byType(many, nil))
	u, _ := upstreamOf(ns)
	ctx := context.Background()
	if f, why := u.find(ctx, look{nameOf(t, "a.example"), dnsmessage.TypeA}, false); why != reason.AllowRule || len(f.addrs) != wire.MaxAddrs {
		t.Errorf("a name with 100 addresses: %+v, %s", f, why)
	}
}

// TestA29HostsFile: the host's own hosts file counts, and is asked of nobody; a
// name is asked for as it is, and no search list is tried.
func TestA29HostsFile(t *testing.T) {
	ns := newNameserver(t, code(dnsmessage.RCodeNameError))
	u, r := upstreamOf(ns)
	for _, name := range []string{"inside.example", "printer"} {
		if got, why := u.addrsOf(t, name, false); got != "10.9.8.7" || why != reason.AllowRule {
			t.Errorf("%s: %q, %s", name, got, why)
		}
	}
	if _, _, n := r.sum(); n != 0 || ns.total() != 0 {
		t.Errorf("a name of the hosts file was asked for %d times", ns.total())
	}
	if _, why := u.addrsOf(t, "intranet", false); why != reason.NoSuchName {
		t.Errorf("%s", why)
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for q := range ns.asked {
		if !strings.HasPrefix(q, "intranet. ") {
			t.Errorf("asked: %s", q)
		}
	}
	if len(ns.asked) != 2 {
		t.Errorf("asked: %v", ns.asked)
	}
}

// TestTruncated: an answer that is cut is asked for again over TCP; both are
// reported.
func TestTruncated(t *testing.T) {
	ns := newNameserver(t, func(_ *nameserver, q asked) {
		if q.q.Type != dnsmessage.TypeA {
			q.reply(q.msg(dnsmessage.RCodeSuccess, false))
		} else if !q.tcp {
			q.reply(q.msg(dnsmessage.RCodeSuccess, true))
		} else {
			q.reply(q.msg(dnsmessage.RCodeSuccess, false, a4(9)))
		}
	})
	u, r := upstreamOf(ns)
	if got, why := u.addrsOf(t, "a.example", false); got != "192.0.2.9" {
		t.Errorf("%q, %s", got, why)
	}
	within(t, "the conversations are reported", func() bool { _, _, n := r.sum(); return n == 3 })
	r.agrees(t, ns, 0)
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 seconds: %s", what)
		}
	}
}

// TestA30Spoofed: what answers another question, or has another id, or comes from
// elsewhere, is not taken for the answer.
func TestA30Spoofed(t *testing.T) {
	elsewhere, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	var mu sync.Mutex
	spoofed := int64(0)
	ns := newNameserver(t, func(ns *nameserver, q asked) {
		if q.q.Type != dnsmessage.TypeA {
			q.reply(q.msg(dnsmessage.RCodeSuccess, false))
			return
		}
		wrong := q
		wrong.id++
		q.reply(wrong.msg(dnsmessage.RCodeSuccess, false, a4(66)))
		wrong = q
		wrong.q.Name = dnsmessage.MustNewName("other.example.")
		q.reply(wrong.msg(dnsmessage.RCodeSuccess, false, a4(66)))
		wrong = q
		wrong.q.Type = dnsmessage.TypeAAAA
		q.reply(wrong.msg(dnsmessage.RCodeSuccess, false, a6(66)))
		q.reply([]byte("junk"))
		mu.Lock()
		defer mu.Unlock()
		ns.mu.Lock()
		for talk := range ns.talks {
			if to, err := netip.ParseAddrPort(talk[4:]); err == nil {
				b := q.msg(dnsmessage.RCodeSuccess, false, a4(66))
				elsewhere.WriteTo(b, net.UDPAddrFromAddrPort(to))
				spoofed += int64(len(b))
			}
		}
		ns.mu.Unlock()
		q.reply(q.msg(dnsmessage.RCodeSuccess, false, a4(1)))
	})
	u, r := upstreamOf(ns)
	if got, why := u.addrsOf(t, "a.example", false); got != "192.0.2.1" {
		t.Errorf("%q, %s", got, why)
	}
	mu.Lock()
	defer mu.Unlock()
	if spoofed == 0 {
		t.Error("nothing was sent from elsewhere")
	}
	r.agrees(t, ns, 0)
}

// TestSilent: a nameserver that does not answer is no answer, in time; a closed
// port is one at once. Both are reported.
func TestSilent(t *testing.T) {
	ns := newNameserver(t, func(*nameserver, asked) {})
	u, r := upstreamOf(ns)
	began := time.Now()
	if got, why := u.addrsOf(t, "a.example", false); got != "" || why != reason.NoAnswer {
		t.Errorf("%q, %s", got, why)
	}
	if took := time.Since(began); took < time.Second || took > lookTime+2*time.Second {
		t.Errorf("it took %v", took) // it tries twice, for a second each
	}
	within(t, "the conversations are reported", func() bool { _, _, n := r.sum(); return n >= 2 })
	for _, x := range r.all {
		if x.Up == 0 || x.Down != 0 || x.Reason != reason.NoAnswer {
			t.Errorf("%+v", x)
		}
	}
}

func TestClosedNameserver(t *testing.T) {
	ns := newNameserver(t, func(*nameserver, asked) {})
	u, r := upstreamOf(ns)
	ns.udp.Close()
	began := time.Now()
	if _, why := u.addrsOf(t, "a.example", false); why != reason.NoAnswer {
		t.Errorf("%s", why)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	u.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no way") }
	if _, why := u.addrsOf(t, "b.example", false); why != reason.NoAnswer {
		t.Errorf("%s", why)
	}
	tried := 0
	for _, x := range r.all {
		if x.Name == "b.example" && x.Up == 0 && x.Reason == reason.NoAnswer {
			tried++
		}
	}
	if tried == 0 {
		t.Errorf("a nameserver that cannot be dialled is not reported: %+v", r.all)
	}
}
