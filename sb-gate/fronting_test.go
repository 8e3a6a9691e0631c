//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sb/lib/reason"
)

// denies sends bytes to a name on a port, on which nothing of them may go out.
func (s *sandbox) denies(w *site, name, bytes, why string) {
	s.t.Helper()
	c := s.dial(name, w.at.Port())
	io.WriteString(c, bytes)
	began := time.Now()
	readAll(c)
	if took := time.Since(began); took > 5*time.Second {
		s.t.Errorf("%s is told after %v", why, took)
	}
	c.Close()
	s.has("close tcp " + name + " " + w.at.String() + " " + why + " - up=0")
}

// TestB11Prefaces: words before a hello are no hello. Where a rule opens another
// protocol by its port, they pass.
func TestB11Prefaces(t *testing.T) {
	s := start(t, "a.example", "mail.example:587")
	hello := string(firstBytes(t, client("denied.example")))
	for i, c := range []struct{ what, bytes, why string }{
		{"B11 PROXY, version 1", "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n", "http-malformed"},
		{"B11 PROXY, version 2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "not-identified"},
		{"B11 SMTP", "EHLO a.example\r\nSTARTTLS\r\n", "http-malformed"},
		{"B11 IMAP", "a1 STARTTLS\r\n", "not-identified"},
		{"B11 PostgreSQL", "\x00\x00\x00\x08\x04\xd2\x16\x2f", "not-identified"},
		{"B11 SOCKS5", "\x05\x01\x00\x05\x01\x00\x03\x0edenied.example\x01\xbb", "not-identified"},
		{"B11 CONNECT", "CONNECT denied.example:443 HTTP/1.1\r\nHost: denied.example\r\n\r\n", "http-connect"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := s.site("a.example", uint16(2000+i), drain)
			s.denies(w, "a.example", c.bytes+hello, c.why)
		})
	}
	mail := s.site("mail.example", 587, func(c net.Conn) {
		io.WriteString(c, "220 mail.example\r\n")
		echo(c)
	})
	c := s.dial("mail.example", 587)
	read(t, c, "220 mail.example")
	io.WriteString(c, "STARTTLS\r\n")
	read(t, c, "STARTTLS")
	c.CloseWrite()
	readAll(c)
	s.has("close tcp mail.example " + mail.at.String() + " done - up=10")
}

// receives waits until a server that drains has read so much.
func (s *sandbox) receives(w *site, n int) {
	s.t.Helper()
	within(s.t, 5*time.Second, "the server gets "+num(n)+" bytes", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.conns) > 0 && w.conns[len(w.conns)-1].read.Load() == int64(n)
	})
}

// offersEarlyData is a hello with the early_data extension (RFC 8446, section
// 4.2.10) behind its others.
func offersEarlyData(hello []byte) []byte {
	b := append([]byte(nil), hello...)
	grow := func(at, n int) { // a length of two bytes
		v := int(b[at])<<8 | int(b[at+1]) + n
		b[at], b[at+1] = byte(v>>8), byte(v)
	}
	at := 9 + 34
	at += 1 + int(b[at])
	at += 2 + (int(b[at])<<8 | int(b[at+1]))
	at += 1 + int(b[at])
	for _, length := range []int{3, 7, at} {
		grow(length, 4)
	}
	return append(b, 0, 42, 0, 0)
}

// TestB17RefusedNames: a hello that is refused says nothing to anybody: not to the
// server, and not to a nameserver.
func TestB17RefusedNames(t *testing.T) {
	s := start(t, "a.example", "*.w.example", "!no.w.example")
	w := s.secure(443, "a.example")
	h := netip.AddrPortFrom(s.handle("a.example"), 443)
	looked := s.dns.looked.Load()
	const n = 50
	for i := range n {
		c, err := s.guest.dial(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := speaks(c, client(fmt.Sprintf("secret%d.evil.example", i))); err == nil {
			t.Error("it passed")
		}
		c.Close()
	}
	s.hasN(n, "close tcp a.example "+w.at.String()+" sni-denied - up=0")
	if got := s.dns.looked.Load() - looked; got != n {
		t.Errorf("where names are was asked %d times, not once a dial", got)
	}
	// A name that a wildcard allows is asked for, within the budget of such names.
	s.dns.fail("more.w.example", reason.ResolveBudget)
	for name, why := range map[string]string{"no.w.example": "deny-rule", "more.w.example": "sni-mismatch"} {
		if _, err := speaks(s.dial("a.example", 443), client(name)); err == nil {
			t.Errorf("%s passed", name)
		}
		s.has("close tcp a.example " + w.at.String() + " " + why + " - up=0")
	}
	s.passesTLS("a.example", 443, "a.example")
}

// TestB18R21Fronting: in clear, a request for another host of the same address is
// refused whatever the connection was opened for. Within TLS nobody sees it: the
// log says which name was proven, and no more.
func TestB18R21Fronting(t *testing.T) {
	s := start(t, "a.example")
	clear := s.web("a.example", 80)
	if got := s.says("a.example", 80, get("denied.example")); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("%q", got)
	}
	s.closedUnsaid(clear, "a.example", "host-denied")
	s.passesHTTP("a.example", 80)
	w := s.secure(443, "a.example", "denied.example")
	c := tls.Client(s.dial("a.example", 443), client("a.example"))
	read(t, c, "you asked for a.example")
	io.WriteString(c, get("denied.example"))
	read(t, c, "GET / HTTP/1.1")
	read(t, c, "Host: denied.example")
	c.Close()
	s.has("allow tcp a.example " + w.at.String() + " allow-rule a.example")
	s.hasNot("allow * denied.example")
}

// TestA5R59Answers: what a name leads to is judged address by address, in any
// spelling, and only the ones that may be are dialled.
func TestA5R59Answers(t *testing.T) {
	s := start(t, "a.example", "b.example")
	w := s.site("", 443, drain)
	lan := s.siteAt(netip.MustParseAddr("10.1.0.9"), 443, drain)
	mapped := netip.MustParseAddr("::ffff:10.1.0.9")
	s.dns.at("a.example", mapped, netip.MustParseAddr("64:ff9b::a01:9"), lan.at.Addr(), netip.AddrFrom16(w.at.Addr().As16()))
	s.hello("a.example")
	s.has("allow tcp a.example " + w.at.String() + " allow-rule a.example")
	s.dns.at("b.example", mapped, lan.at.Addr())
	s.refused("b.example", 443)
	s.has("deny tcp b.example " + lan.at.String() + " address-class -")
	if lan.visits() != 0 || w.visits() != 1 {
		t.Errorf("%d visits inside, %d outside", lan.visits(), w.visits())
	}
}

// TestA7Moved: a name that moved is dialled where it is, by the same handle, long
// after it was answered.
func TestA7Moved(t *testing.T) {
	s := start(t, "a.example")
	h := s.handle("a.example")
	for range 3 {
		w := s.site("a.example", 443, drain)
		c, err := s.guest.dial(netip.AddrPortFrom(h, 443))
		if err != nil {
			t.Fatal(err)
		}
		c.Write(firstBytes(t, client("a.example")))
		c.CloseWrite()
		readAll(c)
		c.Close()
		s.has("close tcp a.example " + w.at.String() + " done -")
	}
	s.rules(1, "b.example") // and not at all when it is allowed no more
	s.refusedAt(netip.AddrPortFrom(h, 443))
	s.has("deny tcp a.example 198.18.1.0:443 no-allow-rule -")
}

// TestB6Drip: a hello that comes a byte at a time has the same ten seconds as any
// other; no byte buys more.
func TestB6Drip(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example")
	w := s.secure(443, "a.example")
	c := s.dial("a.example", 443)
	hello := firstBytes(t, client("a.example"))
	began := time.Now()
	for tick := time.NewTicker(250 * time.Millisecond); time.Since(began) < 2*proofTime; <-tick.C {
		if _, err := c.Write(hello[:1]); err != nil {
			break
		}
		hello = hello[1:]
	}
	if took := time.Since(began); took < proofTime-time.Second || took > proofTime+3*time.Second {
		t.Errorf("it was given up after %v", took)
	}
	s.has("close tcp a.example " + w.at.String() + " hello-malformed - up=0")
	s.passesTLS("a.example", 443, "a.example")
}
