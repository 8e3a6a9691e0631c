//go:build linux

package main

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"sb/lib/reason"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// TestD9Destinations: what is no handle and no rule names goes nowhere.
func TestD9Destinations(t *testing.T) {
	s := start(t, "a.example", "45.67.9.0/24:5432")
	s.secure(443, "a.example")
	n := s.guest.net
	for _, c := range []struct{ at, line string }{
		{netip.AddrPortFrom(n.Gateway(), 8080).String(), "deny tcp - 198.18.0.1:8080 gateway-port -"},
		{netip.AddrPortFrom(n.Gateway(), 80).String(), "deny tcp - 198.18.0.1:80 gateway-port -"},
		{"198.18.77.7:443", "deny tcp - 198.18.77.7:443 unresolved-address -"}, // stands for no name
		{"45.67.1.1:443", "deny tcp - 45.67.1.1:443 unresolved-address -"},
		{"240.0.0.1:443", "deny tcp - 240.0.0.1:443 unresolved-address -"},
		{"169.254.169.254:80", "deny tcp - 169.254.169.254:80 unresolved-address -"},
		{"10.1.0.1:22", "deny tcp - 10.1.0.1:22 unresolved-address -"},
		{"45.67.9.9:80", "deny tcp - 45.67.9.9:80 no-allow-rule -"}, // another port of it is allowed
	} {
		s.refusedAt(netip.MustParseAddrPort(c.at))
		s.has(c.line)
	}
	s.send(s.syn(5000, netip.MustParseAddrPort("198.18.0.254:80"))) // the guest's own stack would ask who has it
	s.has("deny tcp - 198.18.0.254:80 inside-subnet -")
	// These are dropped before the stack sees them, so nothing answers.
	for at, why := range map[string]string{"198.18.0.255:80": "frame-multicast", "224.0.0.251:80": "frame-multicast",
		"127.0.0.1:80": "inside-subnet", "0.1.2.3:80": "inside-subnet"} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		if c, err := gonet.DialContextTCP(ctx, s.guest.stack, full(netip.MustParseAddrPort(at)), ipv4.ProtocolNumber); err == nil {
			c.Close()
			t.Errorf("%s was opened", at)
		}
		cancel()
		if s.log.count("deny frame - - "+why) == 0 && at[:3] != "127" && at[:3] != "224" { // the guest's own stack drops those
			t.Errorf("%s: no line says %s", at, why)
		}
	}
	s.passesTLS("a.example", 443, "a.example")
}

// TestLiteral: an address that a rule names is dialled as it is.
func TestLiteral(t *testing.T) {
	s := start(t)
	raw, bare, none := s.site("", 5432, echo), s.site("", 443, echo), s.site("", 443, echo)
	s.rules(1, raw.at.String(), bare.at.Addr().String())
	c, err := s.guest.dial(raw.at)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "\x00\x01 anything\n")
	read(t, c, "\x00\x01 anything")
	c.CloseWrite()
	readAll(c)
	c.Close()
	s.has("allow tcp - " + raw.at.String() + " allow-rule " + raw.at.String())
	c, err = s.guest.dial(bare.at)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "\x00\x01 anything\n")
	readAll(c)
	c.Close()
	s.has("close tcp - " + bare.at.String() + " not-identified - up=0")
	s.refusedAt(none.at)
	s.refusedAt(netip.AddrPortFrom(raw.at.Addr(), 5433))
}

// A TLS client that names nobody may speak to an address that a rule names.
func TestLiteralTLS(t *testing.T) {
	s := start(t)
	w := s.secure(443, "a.example", "denied.example")
	s.rules(1, w.at.Addr().String(), "a.example")
	for name, ok := range map[string]bool{"": true, "a.example": true, "denied.example": false} {
		c, err := s.guest.dial(w.at)
		if err != nil {
			t.Fatal(err)
		}
		config := client(name)
		config.InsecureSkipVerify = name == ""
		if _, err := speaks(c, config); (err == nil) != ok {
			t.Errorf("TLS for %q: %v", name, err)
		}
		c.Close()
	}
	s.has("deny tls denied.example " + w.at.String() + " sni-denied -")
}

// TestA1AddressClass: a name that is allowed does not lead into a closed range,
// unless a rule names that range.
func TestA1AddressClass(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example", "in.example@10.1.0.0/16", "own.example@45.68.0.1", "two.example")
	inside := netip.MustParseAddr("10.1.0.5")
	lan, meta := s.siteAt(inside, 443, echo), s.siteAt(netip.MustParseAddr("169.254.169.254"), 443, echo)
	own, lo := s.siteAt(netip.MustParseAddr("45.68.0.1"), 443, echo), s.siteAt(netip.MustParseAddr("127.0.0.5"), 443, echo)
	public := s.site("", 443, drain)
	for _, at := range []string{"10.1.0.5", "169.254.169.254", "45.68.0.1", "127.0.0.5", "198.18.1.0", "198.18.0.1", "0.0.0.0",
		"100.64.0.1", "192.168.1.1", "255.255.255.255", "::1", "::ffff:10.1.0.5", "64:ff9b::a01:5", "2002:a01:5::", "fe80::1", "fd00::1"} {
		s.dns.at("a.example", netip.MustParseAddr(at))
		s.refused("a.example", 443)
		times := int64(1)
		if at == "::ffff:10.1.0.5" { // another spelling of the first
			times = 2
		}
		s.hasN(times, "deny tcp a.example "+netip.AddrPortFrom(netip.MustParseAddr(at).Unmap(), 443).String()+" address-class -")
	}
	// The controls: those servers are there, and the same name may lead elsewhere.
	s.dns.at("in.example", inside)
	s.dns.at("own.example", own.at.Addr())
	s.hello("in.example")
	s.hello("own.example")
	s.has("allow tcp in.example " + lan.at.String() + " allow-rule in.example@10.1.0.0/16")
	s.dns.at("two.example", inside, public.at.Addr())
	s.hello("two.example")
	if lan.visits() != 1 || own.visits() != 1 || meta.visits() != 0 || lo.visits() != 0 || public.visits() != 1 {
		t.Errorf("visits: %d %d %d %d %d", lan.visits(), own.visits(), meta.visits(), lo.visits(), public.visits())
	}
	// Another name's @ opens nothing for this one.
	s.dns.at("own.example", inside)
	s.refused("own.example", 443)
}

// hello opens a connection to port 443 of a name, sends a ClientHello for it and
// ends.
func (s *sandbox) hello(name string) {
	s.t.Helper()
	c := s.dial(name, 443)
	c.Write(firstBytes(s.t, client(name)))
	c.CloseWrite()
	readAll(c)
	c.Close()
}

// TestA1Rebinding: each dial asks where the name is and judges that.
func TestA1Rebinding(t *testing.T) {
	s := start(t, "a.example")
	w := s.site("a.example", 443, drain)
	lan := s.siteAt(netip.MustParseAddr("10.1.0.6"), 443, drain)
	h := s.handle("a.example")
	s.hello("a.example")
	s.dns.at("a.example", lan.at.Addr())
	s.refusedAt(netip.AddrPortFrom(h, 443))
	s.has("deny tcp a.example " + lan.at.String() + " address-class -")
	s.dns.at("a.example", w.at.Addr())
	s.hello("a.example")
	if w.visits() != 2 || lan.visits() != 0 {
		t.Errorf("%d visits and %d to the inside", w.visits(), lan.visits())
	}
}

// TestA11SharedAddress: a denied name is not reached through the address that it
// shares with an allowed one, on any port and in no protocol.
func TestA11SharedAddress(t *testing.T) {
	s := start(t, "*.cdn.example", "!gist.cdn.example")
	tls443, tls8443 := s.secure(443, "a.cdn.example", "gist.cdn.example"), s.secure(8443, "a.cdn.example", "gist.cdn.example")
	if _, code, err := s.guest.lookup("gist.cdn.example"); err != nil || code != 3 {
		t.Errorf("the denied name: %v %v", code, err)
	}
	s.refusesTLS(tls8443, "a.cdn.example", client("gist.cdn.example"), "deny-rule")
	s.dns.at("a.cdn.example", tls443.at.Addr())
	s.refusesTLS(tls443, "a.cdn.example", client("gist.cdn.example"), "deny-rule")
	web := s.web("a.cdn.example", 80)
	if got := s.says("a.cdn.example", 80, get("gist.cdn.example")); got[:12] != "HTTP/1.1 403" {
		t.Errorf("%q", got)
	}
	s.closedUnsaid(web, "a.cdn.example", "deny-rule")
	s.passesHTTP("a.cdn.example", 80)
	s.dns.at("a.cdn.example", tls443.at.Addr())
	s.passesTLS("a.cdn.example", 443, "a.cdn.example")
	c := s.guest.datagrams(netip.AddrPortFrom(s.handle("a.cdn.example"), 443))
	defer c.Close()
	s.unreachable(c)
	s.has("deny udp a.cdn.example * quic-refused -")
}

// What cannot be resolved or reached looks to the guest like a closed port, and
// says why in the log.
func TestUpstreamFails(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example")
	w := s.site("a.example", 443, drain)
	s.hello("a.example")
	for _, why := range []reason.Code{reason.NoSuchName, reason.NoAnswer, reason.ResolveBudget} {
		s.dns.fail("a.example", why)
		s.refused("a.example", 443)
		s.has("deny tcp a.example 198.18.1.0:443 " + string(why) + " -")
	}
	s.dns.fail("a.example", "made-up")
	s.refused("a.example", 443)
	s.hasN(2, "deny tcp a.example 198.18.1.0:443 no-answer -")
	s.dns.fail("a.example", "")
	s.refused("a.example", 444)
	s.has("dial tcp a.example " + netip.AddrPortFrom(w.at.Addr(), 444).String() + " connect-refused - by=guest")
	s.dns.at("a.example", netip.MustParseAddr("93.184.0.1")) // no route leads there
	s.refused("a.example", 443)
	s.has("dial tcp a.example 93.184.0.1:443 connect-unreachable - by=guest")
	s.dns.at("a.example", w.at.Addr())
	s.hello("a.example")
	s.hasN(2, "close tcp a.example "+w.at.String()+" done -")
}

// fullServer is a server that takes no more connections: a SYN to it is not
// answered. free lets it accept what waits.
func (s *sandbox) fullServer(name string, port uint16) (w *site, free func()) {
	s.t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	at := netip.AddrPortFrom(newAddr(), port)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: at.Addr().As4()}); err != nil {
		s.t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil { // one connection waits, and no more
		s.t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "full")
	ln, err := net.FileListener(f)
	if err != nil {
		s.t.Fatal(err)
	}
	f.Close()
	first, err := net.Dial("tcp", at.String())
	if err != nil {
		s.t.Fatal(err)
	}
	var accepting sync.WaitGroup
	s.t.Cleanup(func() { first.Close(); ln.Close(); accepting.Wait() })
	s.dns.at(name, at.Addr())
	return &site{at: at}, func() {
		accepting.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
			}
		})
	}
}

func TestUpstreamTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example", "b.example")
	dead, _ := s.fullServer("a.example", 443)
	s.site("b.example", 443, drain)
	began := time.Now()
	s.refused("a.example", 443)
	if took := time.Since(began); took < dialTime || took > dialTime+2*time.Second {
		t.Errorf("it was given up after %v", took)
	}
	s.has("dial tcp a.example " + dead.at.String() + " connect-timeout - by=guest")
	s.hello("b.example")
}

// Several addresses: the next one is tried when one is refused, or slow.
func TestSeveralAddresses(t *testing.T) {
	s := start(t, "a.example", "b.example")
	w := s.site("", 443, drain)
	s.dns.at("a.example", netip.MustParseAddr("45.67.255.1"), w.at.Addr())
	s.hello("a.example")
	s.has("dial tcp a.example 45.67.255.1:443 connect-refused - by=guest")
	dead, _ := s.fullServer("b.example", 443)
	s.dns.at("b.example", dead.at.Addr(), w.at.Addr())
	began := time.Now()
	s.hello("b.example")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a slow address held up the next one for %v", took)
	}
	s.has("dial tcp b.example " + dead.at.String() + " connect-failed - by=guest")
	s.has("close tcp b.example " + w.at.String() + " done -")
}

// The host may have IPv6 though the guest has none.
func TestIPv6Upstream(t *testing.T) {
	s := start(t, "a.example")
	w := s.siteAt(netip.MustParseAddr("2600:4567::7"), 443, drain)
	s.dns.at("a.example", w.at.Addr())
	s.hello("a.example")
	s.has("allow tcp a.example [2600:4567::7]:443 allow-rule a.example")
	s.has("close tcp a.example [2600:4567::7]:443 done -")
}

// TestD20Host: the host's own loopback, at the port that a rule names and no other.
func TestD20Host(t *testing.T) {
	s := start(t, "host.sb.internal:11434")
	w := s.siteAt(netip.MustParseAddr("127.0.0.1"), 11434, echo)
	s.siteAt(netip.MustParseAddr("127.0.0.1"), 11435, echo)
	c := s.dial("host.sb.internal", 11434)
	io.WriteString(c, "hello\n")
	read(t, c, "hello")
	c.CloseWrite()
	readAll(c)
	s.has("allow tcp host.sb.internal " + w.at.String() + " allow-rule host.sb.internal:11434")
	s.refused("host.sb.internal", 11435)
	s.has("deny tcp host.sb.internal * no-allow-rule -")
}

// A rule that opens a range for a name opens it for what that rule lets through,
// whatever another rule says of the same name elsewhere.
func TestRuleOfTheAddress(t *testing.T) {
	s := start(t, "a.example:5432", "a.example@10.1.0.0/16")
	public, inside := s.site("", 5432, echo), s.siteAt(netip.MustParseAddr("10.1.0.7"), 5432, echo)
	s.dns.at("a.example", public.at.Addr())
	c := s.dial("a.example", 5432)
	io.WriteString(c, "\x00raw\n")
	read(t, c, "\x00raw")
	c.CloseWrite()
	readAll(c)
	s.dns.at("a.example", inside.at.Addr())
	c = s.dial("a.example", 5432)
	io.WriteString(c, "\x00raw\n")
	readAll(c)
	s.has("close tcp a.example " + inside.at.String() + " not-identified - up=0")
	s.has("allow tcp a.example " + public.at.String() + " allow-rule a.example:5432")
}
