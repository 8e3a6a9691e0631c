//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

func (s *sandbox) gateway(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(s.guest.net.Gateway(), port)
}

// overTCP asks a question over an open connection.
func overTCP(c *gonet.TCPConn, q []byte) ([]byte, error) {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)); err != nil {
		return nil, err
	}
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(head[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

// TestA27DNS: questions over UDP and TCP are answered by the rules, and only
// denied names leave a reason.
func TestA27DNS(t *testing.T) {
	s := start(t, "a.example", "*.b.example", "!no.b.example")
	for name, allowed := range map[string]bool{"a.example": true, "x.b.example": true, "no.b.example": false, "denied.example": false} {
		a, code, err := s.guest.lookup(name)
		if err != nil || a.IsValid() != allowed || (code == dnsmessage.RCodeSuccess) != allowed {
			t.Errorf("%s: %v %v %v", name, a, code, err)
		}
	}
	s.has("allow dns a.example * allow-rule a.example")
	s.has("deny dns no.b.example - deny-rule no.b.example")
	s.has("deny dns denied.example - no-allow-rule -")
	c, err := s.guest.dial(s.gateway(portDNS))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 { // one after the other on one connection
		b, err := overTCP(c, question(9, "a.example", dnsmessage.TypeA))
		if err != nil {
			t.Fatal(err)
		}
		if a, _, err := answered(b); err != nil || a != s.handle("a.example") {
			t.Errorf("over TCP: %v, %v", a, err)
		}
	}
}

// What sb-dns would never take is refused here; it never sees it.
func TestA25Malformed(t *testing.T) {
	t.Parallel()
	s := start(t, "mtu=9000", "a.example")
	c, err := s.guest.dial(s.gateway(portDNS))
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte{0x10, 0x01}) // 4097 bytes
	if readAll(c) != "" {
		t.Error("an answer")
	}
	c.Close()
	u := s.guest.datagrams(s.gateway(portDNS))
	u.Write(make([]byte, wire.MaxMessage+1))
	u.Close()
	s.hasN(2, "deny dns - - dns-malformed -")
	if n := s.dns.asked.Load(); n != 0 {
		t.Errorf("sb-dns was asked %d times", n)
	}
	// One that is no question is what sb-dns says it is; nothing is answered.
	if b, err := ask(s.guest.datagrams(s.gateway(portDNS)), []byte("junk"), 300*time.Millisecond); err == nil {
		t.Errorf("junk was answered: %q", b)
	}
	s.hasN(3, "deny dns - - dns-malformed -")
	s.handle("a.example")
}

func ask(c *gonet.UDPConn, q []byte, wait time.Duration) ([]byte, error) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(wait))
	c.Write(q)
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	return buf[:n], err
}

// TestA26Queries: the questions that wait for sb-dns are bounded, over UDP and
// over TCP; when it answers again, so does the gate.
func TestA26Queries(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example")
	s.handle("a.example")
	silent := make(chan wire.Query, 2*maxQueries)
	s.dns.lies(func(d *fakeDNS, rec any) bool {
		if q, ok := rec.(wire.Query); ok {
			silent <- q
			return true
		}
		return false
	})
	stream, err := s.guest.dial(s.gateway(portDNS))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	u := s.guest.datagrams(s.gateway(portDNS))
	defer u.Close()
	for i := range maxQueries {
		u.Write(question(uint16(i), "a.example", dnsmessage.TypeA))
		if i%64 == 63 { // no faster than the wire takes them
			within(t, 5*time.Second, "they arrive", func() bool { return len(silent) == i+1 })
		}
	}
	u.Write(question(9999, "a.example", dnsmessage.TypeA))
	if b, err := overTCP(stream, question(9, "a.example", dnsmessage.TypeA)); err == nil {
		t.Errorf("over TCP: % x", b)
	}
	s.hasN(2, "deny dns - - query-budget -")
	s.dns.lies(nil)
	within(t, dnsAnswerTime+5*time.Second, "it answers again", func() bool {
		b, err := ask(s.guest.datagrams(s.gateway(portDNS)), question(1, "a.example", dnsmessage.TypeA), 200*time.Millisecond)
		if err != nil {
			return false
		}
		a, _, err := answered(b)
		return err == nil && a.IsValid()
	})
}

func TestA27Connections(t *testing.T) {
	s := start(t, "a.example")
	var open []*gonet.TCPConn
	for range maxDNSConns {
		c, err := s.guest.dial(s.gateway(portDNS))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := overTCP(c, question(1, "a.example", dnsmessage.TypeA)); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	s.refusedAt(s.gateway(portDNS)) // one too many
	s.has("deny dns - - query-budget -")
	open[0].Close()
	within(t, 5*time.Second, "another one is served", func() bool {
		c, err := s.guest.dial(s.gateway(portDNS))
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = overTCP(c, question(1, "a.example", dnsmessage.TypeA))
		return err == nil
	})
	s.handle("a.example") // UDP goes on meanwhile
}

// TestA8Order: an address that was answered can be dialled, always.
func TestA8Order(t *testing.T) {
	s := start(t, "*.a.example")
	at := newAddr() // nobody listens there: the dial itself is refused
	const n = 300
	for i := range n {
		name := fmt.Sprintf("x%d.a.example", i)
		s.dns.at(name, at)
		s.refused(name, 443)
	}
	s.hasN(n, "dial tcp * "+at.String()+":443 connect-refused -")
	s.hasNot("deny tcp")
}

// What sb-dns says is judged again; where it says what cannot be, the gate ends.
func TestLies(t *testing.T) {
	other := netip.MustParseAddr("198.18.1.0") // what the first name has
	for _, c := range []struct {
		what   string
		change func(a *wire.Answer)
		ends   bool
	}{
		{"another name's handle", func(a *wire.Answer) { a.Handle = other }, true},
		{"an address of the wire", func(a *wire.Answer) { a.Handle = netip.MustParseAddr("198.18.0.1") }, true},
		{"an address outside of the pool", func(a *wire.Answer) { a.Handle = netip.MustParseAddr("45.67.1.1") }, true},
		{"a name that is none", func(a *wire.Answer) { a.Name = "b example" }, true},
		{"a denied name as allowed", func(a *wire.Answer) { a.Name = "denied.example" }, false},
		{"a denied name's other record as allowed", func(a *wire.Answer) { a.Name, a.Handle = "denied.example", netip.Addr{} }, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := start(t, "a.example", "b.example")
			if got := s.handle("a.example"); got != other {
				t.Fatalf("the first handle is %s", got)
			}
			s.dns.lies(func(d *fakeDNS, rec any) bool {
				q, ok := rec.(wire.Query)
				if !ok {
					return false
				}
				a := d.about(q)
				c.change(&a)
				d.conn.Send(a)
				return true
			})
			b, err := ask(s.guest.datagrams(s.gateway(portDNS)), question(1, "b.example", dnsmessage.TypeA), 500*time.Millisecond)
			if err == nil {
				t.Errorf("the guest got an answer: %q", b)
			}
			if c.ends {
				if err := s.wait(); err == nil {
					t.Error("the gate ended without an error")
				} else {
					t.Log(err)
				}
				return
			}
			s.has("deny dns denied.example * no-allow-rule -")
			s.dns.lies(nil)
			s.handle("b.example")
		})
	}
}

// A denial of sb-dns's with a reason that is none does not reach the log.
func TestLieAboutReason(t *testing.T) {
	s := start(t, "a.example")
	s.dns.lies(func(d *fakeDNS, rec any) bool {
		q, ok := rec.(wire.Query)
		if ok {
			d.conn.Send(wire.Answer{ID: q.ID, Name: "a.example", Reason: "made up"})
		}
		return ok
	})
	ask(s.guest.datagrams(s.gateway(portDNS)), question(1, "a.example", dnsmessage.TypeA), 100*time.Millisecond)
	s.has("deny dns a.example - no-answer -")
	s.dns.lies(nil)
	s.handle("a.example")
}

// Addresses for a gate that died are not taken for what this one asked.
func TestStaleAnswers(t *testing.T) {
	s := start(t, "a.example")
	right, wrong := s.site("a.example", 443, drain), s.site("", 443, drain)
	s.dns.lies(func(d *fakeDNS, rec any) bool {
		if _, ok := rec.(wire.Resolve); ok {
			for id := range uint32(1000) {
				d.conn.Send(wire.Resolved{ID: id, Reason: reason.AllowRule, Addrs: []netip.Addr{wrong.at.Addr()}})
			}
		}
		return false
	})
	s.hello("a.example")
	if right.visits() != 1 || wrong.visits() != 0 {
		t.Errorf("%d visits, %d of them where it should not go", right.visits(), wrong.visits())
	}
}

// TestDNSReplaced: another sb-dns on the same wire learns what stands, and is
// asked again what the one before left unanswered.
func TestDNSReplaced(t *testing.T) {
	s := start(t, "a.example", "b.example", "c.example")
	w := s.site("a.example", 443, drain)
	s.dns.at("c.example", w.at.Addr())
	a, c := s.handle("a.example"), s.handle("c.example")
	hung := make(chan struct{}, 10)
	s.dns.lies(func(d *fakeDNS, rec any) bool { hung <- struct{}{}; return true })
	asked := make(chan error, 1)
	go func() { // a question and a dial that it does not answer
		_, _, err := s.guest.lookup("b.example")
		asked <- err
	}()
	<-hung
	dialled := make(chan error, 1)
	go func() {
		conn, err := s.guest.dial(netip.AddrPortFrom(c, 443))
		if err == nil {
			conn.Close()
		}
		dialled <- err
	}()
	<-hung
	// It dies in the middle of a record; the next one reads on the same wire.
	s.dns.file.Write([]byte("x a.exam"))
	s.dns.file.SetReadDeadline(time.Unix(1, 0))
	<-s.dns.ended
	s.dns.file.SetReadDeadline(time.Time{})
	old := s.dns
	s.dns.file.Write([]byte("ple 45.67.0.53:53 40 56 3 done\n"))
	s.dns = newFakeDNS(s.guest.net, s.set, old.file)
	s.dns.at("a.example", w.at.Addr())
	s.dns.at("c.example", w.at.Addr())
	go s.dns.run()
	for _, done := range []chan error{asked, dialled} {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("what waited for the old sb-dns is not answered by the new one")
		}
	}
	s.hello("a.example")
	if got := s.handle("a.example"); got != a {
		t.Errorf("the handle of a.example was %s and is %s", a, got)
	}
	s.has("allow look a.example 45.67.0.53:53 done - up=40 down=56 ms=3 by=sb")
}

// TestClock: the gateway tells the time and nothing else over UDP.
func TestClock(t *testing.T) {
	s := start(t)
	q := make([]byte, 48)
	q[0] = 4<<3 | 3 // version 4, client
	copy(q[40:], "12345678")
	b, err := ask(s.guest.datagrams(s.gateway(portClock)), q, 5*time.Second)
	if err != nil || len(b) != 48 || b[0] != 4<<3|4 || string(b[24:32]) != "12345678" {
		t.Fatalf("% x, %v", b, err)
	}
	got := time.Unix(int64(binary.BigEndian.Uint32(b[40:]))-2208988800, 0)
	if d := time.Since(got); d < -2*time.Second || d > 2*time.Second {
		t.Errorf("it is %v off", d)
	}
	for _, junk := range [][]byte{{}, q[:47], append([]byte{4<<3 | 4}, q[1:]...)} {
		if b, err := ask(s.guest.datagrams(s.gateway(portClock)), junk, 50*time.Millisecond); err == nil {
			t.Errorf("% x was answered by % x", junk, b)
		}
	}
	s.unreachable(s.guest.datagrams(s.gateway(124)))
}
