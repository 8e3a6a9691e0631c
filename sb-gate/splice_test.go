//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestC7Raw: bytes that are neither TLS nor HTTP pass where a rule writes an
// unusual port, or says raw.
func TestC7Raw(t *testing.T) {
	s := start(t, "bare.example", "port.example:5432", "usual.example:443", "raw.example:443/raw", "suffix.example:22")
	for _, c := range []struct {
		name string
		port uint16
		pass bool
		why  string
	}{
		{"bare.example", 5432, false, "not-identified"},
		{"bare.example", 443, false, "not-identified"},
		{"port.example", 5432, true, ""},
		{"usual.example", 443, false, "not-identified"},
		{"raw.example", 443, true, ""},
		{"suffix.example", 22, true, ""},
	} {
		w := s.site(c.name, c.port, echo)
		conn := s.dial(c.name, c.port)
		io.WriteString(conn, "\x00\x00\x00\x08 not TLS\n")
		conn.CloseWrite()
		got := readAll(conn)
		if (got != "") != c.pass {
			t.Errorf("%s:%d: %q", c.name, c.port, got)
		}
		if c.pass {
			s.has(fmt.Sprintf("allow tcp %s %s allow-rule", c.name, w.at))
			s.has(fmt.Sprintf("close tcp %s %s done - up=%d down=%d", c.name, w.at, len(got), len(got)))
		} else {
			s.has(fmt.Sprintf("deny tcp %s %s %s -", c.name, w.at, c.why))
			s.closedUnsaid(w, c.name, c.why)
		}
	}
	s.refused("port.example", 5433)
}

// On a port where raw bytes may pass, TLS and HTTP still must name the host; under
// /raw nothing must.
func TestC7RawAndNamed(t *testing.T) {
	s := start(t, "port.example:5432", "raw.example:5432/raw")
	w := s.secure(5432, "port.example", "raw.example", "denied.example")
	s.passesTLS("port.example", 5432, "port.example")
	s.refusesTLS(w, "port.example", client("denied.example"), "sni-denied")
	s.passesTLS("raw.example", 5432, "denied.example")
	web := s.web("port.example", 5432)
	if got := s.says("port.example", 5432, get("denied.example")); !strings.Contains(got, "403") {
		t.Errorf("%q", got)
	}
	s.closedUnsaid(web, "port.example", "host-denied")
}

// TestC8ServerFirst: a server that speaks first is heard at once where raw bytes
// may pass, and refused elsewhere: its greeting is counted, and goes nowhere.
func TestC8ServerFirst(t *testing.T) {
	s := start(t, "ssh.example:22", "bare.example")
	const banner = "SSH-2.0-test\r\n"
	greet := func(c net.Conn) {
		io.WriteString(c, banner)
		echo(c)
	}
	w, bare := s.site("ssh.example", 22, greet), s.site("bare.example", 22, greet)
	best := time.Hour // the machine may be busy, though not each time
	for range 10 {
		c := s.dial("ssh.example", 22)
		began := time.Now()
		read(t, c, "SSH-2.0-test")
		best = min(best, time.Since(began))
		io.WriteString(c, "SSH-2.0-guest\r\n")
		read(t, c, "SSH-2.0-guest")
		c.CloseWrite()
		readAll(c)
		c.Close()
	}
	if best > 50*time.Millisecond {
		t.Errorf("the greeting took %v at best", best)
	}
	s.hasN(10, "close tcp ssh.example "+w.at.String()+" done - up=15 down="+num(len(banner)+15))
	c := s.dial("bare.example", 22)
	if got := readAll(c); got != "" {
		t.Errorf("the guest heard %q", got)
	}
	s.has("close tcp bare.example " + bare.at.String() + " server-first - up=0 down=" + num(len(banner)))
	s.has("deny tcp bare.example " + bare.at.String() + " server-first -")
}

// TestHalfClose: each side's end reaches the other, which goes on.
func TestHalfClose(t *testing.T) {
	s := start(t, "a.example:7")
	guestFirst := s.site("a.example", 7, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "heard %d\n", len(b))
	})
	c := s.dial("a.example", 7)
	c.Write(make([]byte, 12345))
	c.CloseWrite()
	if got := readAll(c); got != "heard 12345\n" {
		t.Errorf("%q", got)
	}
	s.has("close tcp a.example " + guestFirst.at.String() + " done - up=12345 down=12")
	said := make(chan string, 1)
	serverFirst := s.site("a.example", 7, func(c net.Conn) {
		io.WriteString(c, "that is all\n")
		c.(*siteConn).tcp.CloseWrite()
		b, _ := io.ReadAll(c)
		said <- string(b)
	})
	c = s.dial("a.example", 7)
	if got := readAll(c); got != "that is all\n" {
		t.Errorf("%q", got)
	}
	io.WriteString(c, "and this is mine")
	c.CloseWrite()
	if got := <-said; got != "and this is mine" {
		t.Errorf("%q", got)
	}
	s.has("close tcp a.example " + serverFirst.at.String() + " done - up=16 down=12")
}

// TestReset: a reset of either side is one for the other, and says so.
func TestReset(t *testing.T) {
	s := start(t, "a.example:7", "b.example")
	broken := make(chan error, 4)
	w := s.site("a.example", 7, func(c net.Conn) {
		io.WriteString(c, "hello\n")
		_, err := io.Copy(io.Discard, c)
		broken <- err
	})
	c := s.dial("a.example", 7)
	read(t, c, "hello")
	io.WriteString(c, "some")
	within(t, 5*time.Second, "it arrives", func() bool { return w.first().read.Load() == 4 })
	s.guest.abort(c)
	if err := <-broken; err == nil {
		t.Error("the server saw a plain end")
	}
	s.has("close tcp a.example " + w.at.String() + " reset - up=4 down=6")

	cut := func(c net.Conn) {
		io.CopyN(io.Discard, c, 4)
		c.(*siteConn).tcp.SetLinger(0)
	}
	w = s.site("a.example", 7, cut)
	c = s.dial("a.example", 7)
	io.WriteString(c, "some")
	if endedPlainly(c) {
		t.Error("the guest saw a plain end")
	}
	s.has("close tcp a.example " + w.at.String() + " reset - up=4 down=0")

	// Before anything was said, and within HTTP.
	opened := make(chan struct{})
	w = s.site("b.example", 80, func(c net.Conn) {
		<-opened
		c.(*siteConn).tcp.SetLinger(0)
	})
	c = s.dial("b.example", 80)
	close(opened)
	if endedPlainly(c) {
		t.Error("a server that resets at once: a plain end")
	}
	s.has("close tcp b.example " + w.at.String() + " reset - up=0")
	w = s.site("b.example", 80, func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		broken <- err
	})
	c = s.dial("b.example", 80)
	io.WriteString(c, get("b.example"))
	within(t, 5*time.Second, "it arrives", func() bool { return w.visits() > 0 && w.first().read.Load() > 0 })
	s.guest.abort(c)
	if err := <-broken; err == nil {
		t.Error("the web server saw a plain end")
	}
	s.has("close tcp b.example " + w.at.String() + " reset - up=" + num(len(get("b.example"))))
}

// A server that ends before anything was said is one that is gone.
func TestEndsUnsaid(t *testing.T) {
	s := start(t, "a.example")
	w := s.site("a.example", 443, func(c net.Conn) {})
	if c := s.dial("a.example", 443); !endedPlainly(c) {
		t.Error("no plain end")
	}
	s.has("close tcp a.example " + w.at.String() + " done - up=0 down=0")
	w = s.site("a.example", 443, drain)
	c := s.dial("a.example", 443)
	c.CloseWrite()
	if !endedPlainly(c) {
		t.Error("no plain end")
	}
	s.has("close tcp a.example " + w.at.String() + " done - up=0 down=0")
	s.hello("a.example")
}

// TestBigBodies: megabytes both ways at once, each byte as it was, and counted.
func TestBigBodies(t *testing.T) {
	t.Parallel()
	for _, mtu := range []string{"mtu=1500", "mtu=65520", "crowd"} {
		s := start(t, strings.Replace(mtu, "crowd", "crowd.example:7", 1), "a.example:7", "b.example")
		if mtu == "crowd" {
			s.crowd()
		}
		const size = 8 << 20
		up, down := noise(size), noise(size+1)
		w := s.site("a.example", 7, func(c net.Conn) {
			var both sync.WaitGroup
			both.Go(func() { c.Write(down); c.(*siteConn).tcp.CloseWrite() })
			if b, err := io.ReadAll(c); err != nil || !bytes.Equal(b, up) {
				t.Errorf("%d bytes reached the server, not those that were sent: %v", len(b), err)
			}
			both.Wait()
		})
		c := s.dial("a.example", 7)
		var both sync.WaitGroup
		both.Go(func() { c.Write(up); c.CloseWrite() })
		if b, err := io.ReadAll(c); err != nil || !bytes.Equal(b, down) {
			t.Errorf("%d bytes reached the guest, not those that were sent: %v", len(b), err)
		}
		both.Wait()
		s.has(fmt.Sprintf("close tcp a.example %s done - up=%d down=%d", w.at, len(up), len(down)))

		web := s.web("b.example", 80)
		head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: b.example\r\nContent-Length: %d\r\n\r\n", size)
		if got := s.says("b.example", 80, head+string(up)); !strings.Contains(got, fmt.Sprintf("body=%d\n", size)) {
			t.Errorf("%.200q", got)
		}
		s.has(fmt.Sprintf("close tcp b.example %s done - up=%d", web.at, len(head)+size))
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// TestNothingSent: a guest that says nothing, or not enough, is not waited for;
// where raw bytes may pass, what it said passes after a second.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example", "raw.example:7")
	w := s.site("a.example", 443, drain)
	var all sync.WaitGroup
	began := time.Now()
	for _, c := range []struct{ bytes, line string }{
		{"", "deny tcp a.example " + w.at.String() + " nothing-sent -"},
		{"\x16\x03\x01\x02", "deny tls a.example " + w.at.String() + " hello-malformed -"},
		{"GET / HTTP/1.1\r\nHost: a.ex", "deny http a.example " + w.at.String() + " http-malformed -"},
		{"HELO", "deny tcp a.example " + w.at.String() + " not-identified -"},
	} {
		conn := s.dial("a.example", 443)
		all.Go(func() {
			io.WriteString(conn, c.bytes)
			readAll(conn)
			if took := time.Since(began); took < proofTime-time.Second || took > proofTime+4*time.Second {
				t.Errorf("%q was waited for %v", c.bytes, took)
			}
			s.has(c.line)
		})
	}
	raw := s.site("raw.example", 7, echo)
	conn := s.dial("raw.example", 7)
	began2 := time.Now()
	io.WriteString(conn, "GET x\x16")
	one := make([]byte, 1)
	if _, err := conn.Read(one); err != nil || one[0] != 'G' {
		t.Errorf("the echo: %q, %v", one, err)
	}
	if took := time.Since(began2); took > rawProofTime+time.Second {
		t.Errorf("raw bytes were held for %v", took)
	}
	conn.Close()
	all.Wait()
	s.hasN(4, "dial tcp a.example "+w.at.String())
	s.has("allow tcp raw.example " + raw.at.String())
	s.hello("a.example")
}

// abort resets a connection.
func (g *guest) abort(c interface{ RemoteAddr() net.Addr }) {
	to := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	for _, e := range g.stack.RegisteredEndpoints() {
		if info, ok := e.(interface{ Abort() }); ok && remoteOf(e) == netip.AddrPortFrom(to.Addr().Unmap(), to.Port()) {
			info.Abort()
		}
	}
}
