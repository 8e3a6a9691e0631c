//go:build linux

package main

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// datagramSite is a UDP server that echoes, in capitals.
type datagramSite struct {
	at   netip.AddrPort
	conn *net.UDPConn
	mu   sync.Mutex
	got  []string
}

func (s *sandbox) datagramSite(name string, port uint16) *datagramSite {
	s.t.Helper()
	w := &datagramSite{at: netip.AddrPortFrom(newAddr(), port)}
	var err error
	if w.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(w.at)); err != nil {
		s.t.Fatal(err)
	}
	s.dns.at(name, w.at.Addr())
	var done sync.WaitGroup
	s.t.Cleanup(func() { w.conn.Close(); done.Wait() })
	done.Go(func() {
		buf := make([]byte, 65535)
		for {
			n, from, err := w.conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			w.mu.Lock()
			w.got = append(w.got, string(buf[:n]))
			w.mu.Unlock()
			w.conn.WriteToUDPAddrPort([]byte(strings.ToUpper(string(buf[:n]))), from)
		}
	})
	return w
}

func (w *datagramSite) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.got)
}

// exchange sends a datagram and returns the answer.
func exchange(c *gonet.UDPConn, b string) (string, error) {
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(b)); err != nil {
		return "", err
	}
	buf := make([]byte, 65535)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// unreachable sends a datagram, to which the answer must be that the port is
// unreachable, and at once.
func (s *sandbox) unreachable(c *gonet.UDPConn) {
	s.t.Helper()
	began := time.Now()
	c.Write([]byte("x"))
	// The stack does not wake who reads: ask again.
	var err error
	for buf := make([]byte, 100); time.Since(began) < 2*time.Second; {
		c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		if _, err = c.Read(buf); err == nil || !os.IsTimeout(err) {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "refused") {
		s.t.Errorf("a datagram that is refused: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		s.t.Errorf("the guest learned it after %v", took)
	}
}

// TestD1D2Datagrams: UDP passes under a rule of its own and no other; QUIC under
// none.
func TestD1D2Datagrams(t *testing.T) {
	s := start(t, "a.example", "b.example:53/udp", "c.example:53")
	a, b := s.datagramSite("a.example", 443), s.datagramSite("b.example", 53)
	s.dns.at("c.example", b.at.Addr())
	for _, c := range []struct {
		name string
		port uint16
		line string
	}{
		{"a.example", 443, "deny udp a.example * quic-refused -"},
		{"a.example", 53, "deny udp a.example * udp-denied -"},
		{"b.example", 443, "deny udp b.example * quic-refused -"},
		{"b.example", 54, "deny udp b.example * udp-denied -"},
		{"c.example", 53, "deny udp c.example * udp-denied -"},
	} {
		conn := s.guest.datagrams(netip.AddrPortFrom(s.handle(c.name), c.port))
		s.unreachable(conn)
		conn.Close()
		s.has(c.line)
	}
	for _, at := range []string{"198.18.99.1:53", "45.67.1.1:53", "198.18.0.1:5353"} {
		conn := s.guest.datagrams(netip.MustParseAddrPort(at))
		s.unreachable(conn)
		conn.Close()
		s.has("deny udp - " + at)
	}
	conn := s.guest.datagrams(netip.AddrPortFrom(s.handle("b.example"), 53))
	defer conn.Close()
	for _, q := range []string{"one", "and two", strings.Repeat("x", 1400)} {
		if got, err := exchange(conn, q); err != nil || got != strings.ToUpper(q) {
			t.Errorf("%q: %q, %v", q, got, err)
		}
	}
	s.has("allow udp b.example " + b.at.String() + " allow-rule b.example:53/udp")
	if a.count() != 0 {
		t.Error("a datagram reached the QUIC server")
	}
	// The end of the gate closes it, with every byte.
	if err := s.end(); err != nil {
		t.Error(err)
	}
	s.has("close udp b.example " + b.at.String() + " gate-end - up=1410 down=1410 by=guest")
}

// A datagram flow ends with the rule that let it pass, at once.
func TestDatagramsPolicy(t *testing.T) {
	s := start(t, "a.example:53/udp", "b.example:53/udp")
	a, b := s.datagramSite("a.example", 53), s.datagramSite("b.example", 53)
	ca, cb := s.guest.datagrams(netip.AddrPortFrom(s.handle("a.example"), 53)), s.guest.datagrams(netip.AddrPortFrom(s.handle("b.example"), 53))
	defer ca.Close()
	defer cb.Close()
	exchange(ca, "x")
	exchange(cb, "x")
	s.rules(1, "b.example:53/udp")
	s.has("close udp a.example " + a.at.String() + " policy-changed - up=1 down=1")
	s.unreachable(ca)
	if got, err := exchange(cb, "y"); err != nil || got != "Y" {
		t.Errorf("the other flow: %q, %v", got, err)
	}
	if a.count() != 1 || b.count() != 2 {
		t.Errorf("%d and %d datagrams arrived", a.count(), b.count())
	}
}

// A port that is closed at the server does not end the flow: the next datagram
// may find it open. No line is written for each.
func TestDatagramsClosedPort(t *testing.T) {
	s := start(t, "a.example:53/udp")
	at := newAddr()
	s.dns.at("a.example", at)
	c := s.guest.datagrams(netip.AddrPortFrom(s.handle("a.example"), 53))
	defer c.Close()
	for range 20 {
		c.Write([]byte("x"))
		time.Sleep(time.Millisecond)
	}
	w, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.AsSlice(), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	within(t, 5*time.Second, "a datagram arrives", func() bool {
		c.Write([]byte("here?"))
		w.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, _, err := w.ReadFrom(make([]byte, 10))
		return err == nil && n > 0
	})
	s.has("allow udp a.example * allow-rule")
	s.hasNot("close udp a.example")
}

// The number of datagram flows is bounded.
func TestDatagramBudget(t *testing.T) {
	s := start(t, "a.example:53/udp")
	s.datagramSite("a.example", 53)
	h := s.handle("a.example")
	var open []*gonet.UDPConn
	for range maxUDPFlows {
		c := s.guest.datagrams(netip.AddrPortFrom(h, 53))
		if got, err := exchange(c, "x"); err != nil || got != "X" {
			t.Fatalf("flow %d: %q, %v", len(open), got, err)
		}
		open = append(open, c)
	}
	c := s.guest.datagrams(netip.AddrPortFrom(h, 53))
	s.unreachable(c)
	c.Close()
	s.has("deny udp a.example * flow-budget -")
	for _, c := range open {
		c.Close()
	}
	// The end of a flow gives its slot back.
	s.rules(1)
	s.rules(2, "a.example:53/udp")
	s.hasN(maxUDPFlows, "close udp a.example")
	c = s.guest.datagrams(netip.AddrPortFrom(h, 53))
	defer c.Close()
	if got, err := exchange(c, "x"); err != nil || got != "X" {
		t.Errorf("after the others ended: %q, %v", got, err)
	}
}

// A name that leads into a closed range is not sent datagrams.
func TestDatagramClass(t *testing.T) {
	s := start(t, "a.example:53/udp", "b.example:53/udp@10.1.0.0/16")
	w, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 1, 0, 8), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, name := range []string{"a.example", "b.example"} {
		s.dns.at(name, netip.MustParseAddr("10.1.0.8"))
		c := s.guest.datagrams(netip.AddrPortFrom(s.handle(name), 53))
		c.Write([]byte(name))
		defer c.Close()
	}
	buf := make([]byte, 100)
	w.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, _, err := w.ReadFrom(buf); err != nil || string(buf[:n]) != "b.example" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	s.has("deny udp a.example 10.1.0.8:53 address-class -")
	s.has("allow udp b.example 10.1.0.8:53 allow-rule b.example:53/udp@10.1.0.0/16")
}
