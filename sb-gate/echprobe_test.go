//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/lib/ctl"
)

// TestB2AutoEnds: the gate's end does not wait for a probe, and that has its lines.
func TestB2AutoEnds(t *testing.T) {
	s := start(t, "mute.example", "ech=auto")
	w := s.site("mute.example", 443, drain)
	c := s.dial("mute.example", 443)
	c.Write(firstBytes(t, grease("mute.example")))
	s.has("allow tcp mute.example " + w.at.String() + " allow-rule mute.example by=sb")
	began := time.Now()
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the gate ended after %v", took)
	}
	s.has("close tcp mute.example " + w.at.String() + " reset - by=sb ech=unknown")
	s.has("close tcp mute.example " + w.at.String() + " * - up=0 by=guest") // either end may have come first
}

// TestB2AutoFullDisk: a probe whose line cannot be written says nothing, and the
// hello is refused.
func TestB2AutoFullDisk(t *testing.T) {
	s := start(t, "a.example", "ech=auto")
	w := s.secure(443, "a.example")
	c := s.dial("a.example", 443)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	s.ask(ctl.Message{{Key: "ask", Value: "audit"}}, full)
	within(t, 5*time.Second, "nothing is let out", func() bool {
		other, err := s.guest.dial(netipPort(s.handle("a.example"), 443))
		if err == nil {
			other.Close()
		}
		return err != nil
	})
	if _, err := speaks(c, grease("a.example")); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("the client says: %v", err)
	}
	room := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(room)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s.ask(ctl.Message{{Key: "ask", Value: "audit"}}, file)
	if passed, _ := s.greased("a.example", 443, grease("a.example")); passed {
		t.Error("passed: the doubt was forgotten at once")
	}
	s.passesTLS("a.example", 443, "a.example") // the control
	if err := s.end(); err != nil {
		t.Error(err)
	}
	s.log.wait()
	s.log.lines = append(s.log.lines, readLog(t, room).lines...)
	s.has("dial tcp a.example " + w.at.String() + " audit-unavailable - by=sb")
	s.has("close tcp a.example " + w.at.String() + " audit-unavailable - up=0 down=0 by=sb ech=unknown")
}

// TestB2AutoProbes: only so many run at a time, whatever the guest does, and none
// begins for a flow that the rules have ended.
func TestB2AutoProbes(t *testing.T) {
	s := start(t, "*.example", "ech=auto")
	// Everything that takes time is done before the first probe begins.
	var conns []net.Conn
	var hellos [][]byte
	for i := range maxProbes + 2 {
		name := fmt.Sprintf("m%d.example", i)
		s.site(name, 443, drain)
		conns, hellos = append(conns, s.dial(name, 443)), append(hellos, firstBytes(t, grease(name)))
	}
	for i, c := range conns {
		if i == maxProbes {
			s.hasN(maxProbes, "allow tcp * * allow-rule *.example by=sb")
		}
		c.Write(hellos[i])
	}
	ended, kept := fmt.Sprintf("m%d.example", maxProbes), fmt.Sprintf("m%d.example", maxProbes+1)
	s.rules(1, "*.example", "!"+ended)
	s.has("close tcp " + ended + " * policy-changed -")
	s.has("close tcp " + kept + " * sni-encrypted - up=0")
	s.hasN(maxProbes+1, "close tcp * * sni-encrypted - up=0 by=guest")
	most, running := 0, map[string]bool{}
	for _, line := range s.log.all() {
		switch {
		case line.Word("by") != "sb":
			continue
		case line.Verdict == audit.Allow:
			running[line.Address] = true
		case line.Verdict == audit.Close:
			delete(running, line.Address)
		}
		most = max(most, len(running))
		if line.Name == ended {
			t.Errorf("a probe for a flow that was over: %s", line)
		}
	}
	if most != maxProbes || len(running) != 0 {
		t.Errorf("%d probes at a time, at the end %v", most, running)
	}
}

// TestB2AutoLinger: a server that does not end the probe's connection is not
// waited for.
func TestB2AutoLinger(t *testing.T) {
	s := start(t, "a.example", "ech=auto")
	s.inexact = true // it is cut off
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	config := &tls.Config{Certificates: []tls.Certificate{theAuthority().certificate("a.example")}}
	w := s.site("a.example", 443, func(c net.Conn) {
		tls.Server(c, config).Handshake()
		<-free
	})
	began := time.Now()
	if passed, _ := s.greased("a.example", 443, grease("a.example")); !passed {
		t.Error("refused")
	}
	if took := time.Since(began); took < echLeave || took > echTime {
		t.Errorf("it took %v", took)
	}
	s.has("close tcp a.example " + w.at.String() + " reset - by=sb ech=none")
}
