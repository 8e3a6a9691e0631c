//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"sb/lib/reason"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// TestLogBreaks: where the log breaks while something is on its way out, that
// goes no further, for it would be in no line.
func TestLogBreaks(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := startWith(t, w, "a.example:7", "b.example", "c.example")
	at := newAddr()
	server, err := net.Listen("tcp", netipPort(at, 7).String())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s.dns.at("a.example", at)
	s.dns.at("b.example", at)
	s.dns.at("c.example", at)

	// A connection that stands and has sent nothing, and a ping that waits to be
	// told where its host is.
	conn := s.dial("a.example", 7)
	outside, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	held := make(chan wire.Resolve, 1)
	s.dns.lies(func(d *fakeDNS, rec any) bool {
		if r, ok := rec.(wire.Resolve); ok && r.Name == "b.example" {
			held <- r
			return true
		}
		return false
	})
	frames := s.guest.tap()
	if _, ok := s.pings(frames, s.handle("b.example"), 1, []byte("x"), 10*time.Millisecond); ok {
		t.Error("control: it is not held")
	}
	resolve := <-held

	r.Close()
	within(t, 5*time.Second, "the log has failed", func() bool {
		c, err := s.guest.dial(netipPort(s.handle("a.example"), 7))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	io.WriteString(conn, "x\n")
	if b := readAll(conn); b != "" {
		t.Errorf("the guest got %q", b)
	}
	outside.SetDeadline(time.Now().Add(5 * time.Second))
	if b, err := io.ReadAll(outside); len(b) > 0 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server got %q, %v", b, err)
	}
	s.dns.conn.Send(s.dns.resolved(resolve))
	if _, ok := s.pings(frames, s.handle("b.example"), 1, []byte("x"), 200*time.Millisecond); ok {
		t.Error("a ping was let out")
	}
	looked := s.dns.looked.Load()
	if _, ok := s.pings(frames, s.handle("c.example"), 1, []byte("x"), 200*time.Millisecond); ok || s.dns.looked.Load() != looked {
		t.Errorf("a ping: answered %v, and it was asked where its host is %d times", ok, s.dns.looked.Load()-looked)
	}
	s.leash.Close()
	if err := s.wait(); err == nil {
		t.Error("the gate ended as if its log were whole")
	}
}

// TestNoPing: where this host gives no socket to ping with, it is said.
func TestNoPing(t *testing.T) {
	s := start(t, "a.example", "b.example")
	at := newAddr()
	s.dns.at("a.example", at)
	s.dns.at("b.example", at)
	frames := s.guest.tap()
	if _, ok := s.pings(frames, s.handle("a.example"), 1, []byte("x"), 5*time.Second); !ok {
		t.Error("control: no answer")
	}
	to := s.handle("b.example")
	next, err := os.Open("/dev/null") // the lowest descriptor that is free
	if err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &old)
	n := uint64(next.Fd())
	next.Close()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, ok := s.pings(frames, to, 2, []byte("x"), 200*time.Millisecond)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if ok {
		t.Error("a ping without a socket was answered")
	}
	s.has("deny icmp b.example " + at.String() + " " + string(reason.PingUnavailable) + " -")
}

// TestA27StreamToo: the questions in flight are bounded over TCP as over UDP.
func TestA27StreamToo(t *testing.T) {
	s := start(t, "a.example")
	s.handle("a.example")
	silent := make(chan struct{}, 2*maxQueries)
	s.dns.lies(func(d *fakeDNS, rec any) bool {
		_, ok := rec.(wire.Query)
		if ok {
			silent <- struct{}{}
		}
		return ok
	})
	u := s.guest.datagrams(s.gateway(portDNS))
	defer u.Close()
	for i := range maxQueries {
		u.Write(question(uint16(i), "a.example", dnsmessage.TypeA))
		if i%64 == 63 { // no faster than the wire takes them
			within(t, 5*time.Second, "they arrive", func() bool { return len(silent) == i+1 })
		}
	}
	c, err := s.guest.dial(s.gateway(portDNS))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if _, err := overTCP(c, question(1, "a.example", dnsmessage.TypeA)); err == nil {
		t.Error("a question too many was answered")
	}
	if took := time.Since(began); took > dnsAnswerTime/2 {
		t.Errorf("it was refused after %v", took)
	}
	s.has("deny dns - - query-budget -")
}
