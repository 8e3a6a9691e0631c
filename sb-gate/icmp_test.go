//go:build linux

package main

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sb/lib/ctl"
	"sb/lib/reason"
	"sb/lib/wire"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// pings sends an echo request and returns the payload of the reply; false: none
// came.
func (s *sandbox) pings(frames <-chan []byte, to netip.Addr, seq uint16, payload []byte, wait time.Duration) ([]byte, bool) {
	s.t.Helper()
	s.send(ether(0x0800, s.packet(1, to, echoRequest(77, seq, payload))))
	for deadline := time.After(wait); ; {
		select {
		case f := <-frames:
			ip := header.IPv4(f[header.EthernetMinimumSize:])
			if len(f) < 42 || f[12] != 8 || f[13] != 0 || ip.Protocol() != 1 || addrOf(ip.SourceAddress()) != to {
				continue
			}
			if m := header.ICMPv4(ip.Payload()); m.Type() == header.ICMPv4EchoReply && m.Ident() == 77 && m.Sequence() == seq {
				if !ip.IsChecksumValid() || checksum.Checksum(m, 0) != 0xffff {
					s.t.Error("the reply has a wrong checksum")
				}
				return m.Payload(), true
			}
		case <-deadline:
			return nil, false
		}
	}
}

// refusesPing sends an echo request, to which the gateway must answer with an
// error at once: the code of it, and that it is about this request.
func (s *sandbox) refusesPing(frames <-chan []byte, to netip.Addr, seq uint16, code header.ICMPv4Code) {
	s.t.Helper()
	packet := s.packet(1, to, echoRequest(77, seq, []byte("the guest's own bytes")))
	s.send(ether(0x0800, packet))
	for deadline := time.After(time.Second); ; {
		select {
		case f := <-frames:
			if len(f) < 42 || f[12] != 8 || f[13] != 0 {
				continue
			}
			ip := header.IPv4(f[header.EthernetMinimumSize:])
			m := header.ICMPv4(ip.Payload())
			if ip.Protocol() != 1 || m.Type() != header.ICMPv4DstUnreachable {
				continue
			}
			if got := m.Payload(); m.Code() != code || addrOf(ip.SourceAddress()) != s.guest.net.Gateway() || !bytes.Equal(got, packet[:28]) || checksum.Checksum(m, 0) != 0xffff {
				s.t.Errorf("ping %s: code %d from %s about % x", to, m.Code(), ip.SourceAddress(), got)
			}
			return
		case <-deadline:
			s.t.Errorf("ping %s: no error came within a second", to)
			return
		}
	}
}

// TestD3Ping: a host that is allowed answers; what goes out to it is the gate's
// own payload, and what comes back to the guest is its own.
func TestD3Ping(t *testing.T) {
	s := start(t, "a.example", "b.example")
	frames := s.guest.tap()
	at := newAddr()
	s.dns.at("a.example", at)
	seen, err := net.ListenPacket("ip4:icmp", at.String()) // sees what reaches that address
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	secret := []byte("the guest's own bytes, which must not leave")
	got, ok := s.pings(frames, s.handle("a.example"), 1, secret, 5*time.Second)
	if !ok || !bytes.Equal(got, secret) {
		t.Errorf("the reply: %q, %v", got, ok)
	}
	buf := make([]byte, 1500)
	seen.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, _, err := seen.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(buf[:n], secret[:8]) || n != 8+len(pingPayload) {
		t.Errorf("what reached the host: %q", buf[:n])
	}
	s.has("allow icmp a.example " + at.String() + " allow-rule a.example")
	s.has("close icmp a.example " + at.String() + " done - up=56 down=56 by=guest")

	// Once a second, and no host that does not answer.
	if _, ok := s.pings(frames, s.handle("a.example"), 2, secret, 100*time.Millisecond); ok {
		t.Error("a second ping within a second was answered")
	}
	s.has("deny icmp a.example 198.18.1.0 ping-budget -")
	s.dns.at("b.example", netip.MustParseAddr("93.184.0.1")) // no route leads there
	if _, ok := s.pings(frames, s.handle("b.example"), 3, secret, 200*time.Millisecond); ok {
		t.Error("a host that is not there answered")
	}
	s.has("close icmp b.example 93.184.0.1 no-answer - up=0 down=0")
	time.Sleep(time.Second)
	if _, ok := s.pings(frames, s.handle("a.example"), 4, secret, 5*time.Second); !ok {
		t.Error("a ping after a second was not answered")
	}
}

// TestD4Refused: nothing answers for what is denied but the gateway, with an error;
// nothing else of ICMP passes; the gateway answers for itself.
func TestD4Refused(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example", "b.example:443", "c.example", "!c.example:443")
	frames := s.guest.tap()
	at := newAddr()
	for _, name := range []string{"a.example", "b.example", "c.example"} {
		s.dns.at(name, at)
	}
	if _, ok := s.pings(frames, s.guest.net.Gateway(), 1, []byte("x"), 5*time.Second); !ok {
		t.Error("the gateway does not answer")
	}
	if _, ok := s.pings(frames, s.handle("a.example"), 2, []byte("x"), 5*time.Second); !ok {
		t.Error("the allowed host does not answer")
	}
	s.dns.at("a.example", netip.MustParseAddr("10.1.0.9"))
	time.Sleep(time.Second)
	s.dns.fail("c.example", reason.NoSuchName)
	for i, c := range []struct {
		to   netip.Addr
		code header.ICMPv4Code
		line string
	}{
		{s.handle("b.example"), header.ICMPv4AdminProhibited, "deny icmp b.example 198.18.1.1 no-allow-rule -"}, // a port narrows
		{netip.MustParseAddr("45.67.3.3"), header.ICMPv4AdminProhibited, "deny icmp - 45.67.3.3 unresolved-address -"},
		{netip.MustParseAddr("198.18.88.1"), header.ICMPv4AdminProhibited, "deny icmp - 198.18.88.1 unresolved-address -"},
		{netip.MustParseAddr("198.18.0.7"), header.ICMPv4AdminProhibited, "deny icmp - 198.18.0.7 inside-subnet -"},
		{s.handle("a.example"), header.ICMPv4HostUnreachable, "deny icmp a.example 10.1.0.9 address-class -"},
		{s.handle("c.example"), header.ICMPv4HostUnreachable, "deny icmp c.example * no-such-name -"},
	} {
		s.refusesPing(frames, c.to, uint16(10+i), c.code)
		s.has(c.line)
	}
	for _, typ := range []byte{0, 3, 5, 13, 17} { // reply, unreachable, redirect, timestamp, mask
		b := echoRequest(1, 1, make([]byte, 28))
		b[0] = typ
		s.send(ether(0x0800, s.packet(1, s.handle("c.example"), b)))
	}
	s.hasN(5, "deny frame - - icmp-type -")
}

// TestD22Ping: a gate that may open no more says so of a ping, and pings again when
// it may.
func TestD22Ping(t *testing.T) {
	s := start(t, "a.example", "b.example")
	s.dns.at("a.example", newAddr())
	s.dns.at("b.example", newAddr())
	frames := s.guest.tap()
	h := s.handle("a.example")
	if _, ok := s.pings(frames, s.handle("b.example"), 1, []byte("x"), 5*time.Second); !ok {
		t.Error("the control is not answered") // after it the gate knows the host's addresses for a while
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	next, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: uint64(next.Fd()), Max: before.Max}
	next.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	s.refusesPing(frames, h, 1, header.ICMPv4HostUnreachable)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	s.has("deny icmp a.example * ping-unavailable -")
	within(t, 5*time.Second, "it is pinged again", func() bool {
		_, ok := s.pings(frames, h, 2, []byte("x"), 300*time.Millisecond)
		return ok
	})
}

// refusesDatagram says whether a datagram is refused at once.
func (s *sandbox) refusesDatagram(to netip.AddrPort) bool {
	c := s.guest.datagrams(to)
	defer c.Close()
	c.Write([]byte("x"))
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	c.Read(make([]byte, 10)) // the stack does not wake who reads
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 10))
	return err != nil && !os.IsTimeout(err)
}

// A log that fails while it is being asked where the host is lets no ping out.
func TestPingLogFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	room, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	s := startWith(t, room, "a.example", "b.example:53/udp")
	b := netip.AddrPortFrom(s.handle("b.example"), 53)
	at := newAddr()
	s.dns.at("a.example", at)
	seen, err := net.ListenPacket("ip4:icmp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	frames, h := s.guest.tap(), s.handle("a.example")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	s.dns.lies(func(_ *fakeDNS, rec any) bool {
		if _, ok := rec.(wire.Resolve); ok {
			s.ask(ctl.Message{{Key: "ask", Value: "audit"}}, full)
			s.send(s.syn(9, netip.MustParseAddrPort("198.18.77.7:80"))) // has a line, which cannot be written
			for end := time.Now().Add(5 * time.Second); !s.refusesDatagram(b) && time.Now().Before(end); {
			} // until the gate knows that it could not be
		}
		return false
	})
	s.send(ether(0x0800, s.packet(1, h, echoRequest(77, 1, []byte("x")))))
	seen.SetReadDeadline(time.Now().Add(1500 * time.Millisecond))
	if n, _, err := seen.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("a ping of %d bytes came", n)
	}
	s.dns.lies(nil)
	again, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	s.ask(ctl.Message{{Key: "ask", Value: "audit"}}, again)
	if _, ok := s.pings(frames, h, 2, []byte("x"), 5*time.Second); !ok {
		t.Error("with a log that takes lines again: not answered")
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	s.log = *readLog(t, file)
	if s.log.count("deny icmp a.example "+at.String()+" audit-unavailable -") != 1 {
		t.Errorf("the log does not say why:\n%s", s.log.String())
	}
}
