//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestB16OtherNamesAreListed: what names a flow's bytes are for is in the log, once
// for each that is not its own, before its close.
func TestB16OtherNamesAreListed(t *testing.T) {
	s := start(t, "a.example", "*.b.example")
	w := s.web("a.example", 80)
	s.dns.at("x.b.example", w.at.Addr())
	s.dns.at("y.b.example", w.at.Addr())
	got := s.says("a.example", 80, get("a.example")+get("x.b.example")+get("y.b.example")+get("x.b.example")+get("a.example"))
	if strings.Count(got, "200 OK") != 5 {
		t.Errorf("%q", got)
	}
	s.has("allow http x.b.example " + w.at.String() + " allow-rule *.b.example")
	s.has("allow http y.b.example " + w.at.String() + " allow-rule *.b.example")
	s.has("close tcp a.example " + w.at.String() + " done -")
	if got := s.says("a.example", 80, get("denied.example")); !strings.Contains(got, "403") {
		t.Errorf("%q", got)
	}
	s.has("deny http denied.example " + w.at.String() + " host-denied -")
	tls := s.secure(443, "a.example", "x.b.example")
	s.passesTLS("a.example", 443, "x.b.example")
	s.has("allow tls x.b.example " + tls.at.String() + " allow-rule *.b.example")
	s.passesTLS("a.example", 443, "a.example")
	s.hasN(2, "close tcp a.example "+tls.at.String()+" done -")
	// Neither the flow's own name, nor one that was refused, nor one twice.
	for line, n := range map[string]int64{"allow http *": 2, "allow tls *": 1} {
		if got := s.log.count(line); got != n {
			t.Errorf("%d of the log are %q, not %d:\n%s", got, line, n, s.log.String())
		}
	}
}

// TestC1NamesOfAFlow: a connection may be for so many names and no more.
func TestC1NamesOfAFlow(t *testing.T) {
	s := start(t, "a.example", "*.w.example")
	w := s.web("a.example", 80)
	var all strings.Builder
	for i := range maxAlso + 1 {
		name := fmt.Sprintf("n%d.w.example", i)
		s.dns.at(name, w.at.Addr())
		all.WriteString(get(name))
		if i == maxAlso-1 {
			all.WriteString(get("a.example") + get("n0.w.example")) // those it has may come again
		}
	}
	got := s.says("a.example", 80, all.String())
	if strings.Count(got, "200 OK") != maxAlso+2 || !strings.Contains(got, "403 Forbidden") || !strings.Contains(got, "name-budget") {
		t.Errorf("%d passed: %q", strings.Count(got, "200 OK"), got)
	}
	s.has("deny http n64.w.example " + w.at.String() + " name-budget -")
	s.hasN(maxAlso, "allow http * "+w.at.String())
}

// TestB19EveryName: a connection ends when any of the names that it carries is
// allowed no more, not only the last one.
func TestB19EveryName(t *testing.T) {
	s := start(t, "a.example", "b.example", "c.example")
	s.inexact = true // its server says more while it is cut
	w := s.site("a.example", 80, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			fmt.Fprintf(c, "for %s\n", req.Host)
		}
	})
	s.dns.at("b.example", w.at.Addr())
	s.dns.at("c.example", w.at.Addr())
	c, other := s.dial("a.example", 80), s.dial("a.example", 80)
	for _, name := range []string{"a.example", "b.example", "c.example"} {
		io.WriteString(c, get(name))
		read(t, c, "for "+name)
	}
	io.WriteString(other, get("c.example"))
	read(t, other, "for c.example")
	s.rules(1, "a.example", "c.example")
	s.has("close tcp a.example " + w.at.String() + " policy-changed -")
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if rest := readAll(c); rest != "" {
		t.Errorf("then it said %q", rest)
	}
	io.WriteString(other, get("c.example")) // its names are still allowed
	read(t, other, "for c.example")
}
