//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestEchoOfMuch: a server that stops reading until its answers are taken, and a
// guest that first writes everything, do not lock each other up in the gate.
func TestEchoOfMuch(t *testing.T) {
	t.Parallel()
	for _, crowd := range []bool{false, true} {
		s := start(t, "a.example:7", "crowd.example:7")
		if crowd {
			s.crowd()
		}
		s.echoesMuch()
	}
}

// crowd takes all the places of connections that may have much in hand.
func (s *sandbox) crowd() {
	s.site("crowd.example", 7, echo)
	for range maxRoomy {
		c := s.dial("crowd.example", 7)
		io.WriteString(c, ".")
		io.ReadFull(c, make([]byte, 1))
		s.t.Cleanup(func() { c.Close() })
	}
}

func (s *sandbox) echoesMuch() {
	t := s.t
	w := s.site("a.example", 7, func(c net.Conn) {
		c.(*siteConn).tcp.SetReadBuffer(512 << 10)
		c.(*siteConn).tcp.SetWriteBuffer(128 << 10)
		echo(c)
	})
	c := s.dial("a.example", 7)
	const size = 24 << 20 // more than fits into all the buffers in between
	var both sync.WaitGroup
	both.Go(func() {
		c.Write(make([]byte, size))
		c.CloseWrite()
	})
	time.Sleep(300 * time.Millisecond) // until nothing moves any more
	n, err := io.Copy(io.Discard, c)
	both.Wait()
	if n != size || err != nil {
		t.Errorf("%d of %d bytes came back: %v", n, size, err)
	}
	s.has(fmt.Sprintf("close tcp a.example %s done - up=%d down=%d", w.at, size, size))
}

// TestD24Deaf: a guest that stops reading its wire holds up neither the rules nor
// the gate's end, however many flows there are.
func TestD24Deaf(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example:7", "b.example:7")
	s.inexact = true
	w := s.site("a.example", 7, func(c net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	s.dns.at("b.example", w.at.Addr())
	const flows = 20
	for range flows {
		s.dial("a.example", 7)
		s.dial("b.example", 7)
	}
	s.hasN(flows, "allow tcp a.example")
	s.hasN(flows, "allow tcp b.example")
	s.guest.setDeaf(true)
	within(t, 10*time.Second, "the wire is full", func() bool { return s.guest.stalled() })
	began := time.Now()
	s.rules(1, "b.example:7")
	s.hasN(flows, "close tcp a.example "+w.at.String()+" policy-changed -")
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the rules took %v", took)
	}
	began = time.Now()
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("the end took %v", took)
	}
	s.hasN(flows, "close tcp b.example "+w.at.String()+" gate-end -")
}

// A guest that was deaf for a while goes on where it was.
func TestD24HearsAgain(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example:7")
	const size = 4 << 20
	s.site("a.example", 7, func(c net.Conn) { c.Write(make([]byte, size)) })
	c := s.dial("a.example", 7)
	s.guest.setDeaf(true)
	time.Sleep(2500 * time.Millisecond) // longer than a frame waits
	s.guest.setDeaf(false)
	if n, err := io.Copy(io.Discard, c); n != size || err != nil {
		t.Errorf("%d of %d bytes, %v", n, size, err)
	}
	c.Close()
	s.handle("a.example")
}
