//go:build linux

package main

import (
	"bufio"

	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/say"
)

// TestEnds: the leash, a signal, the end of the dns wire and of ctl end the gate,
// without an error and with the close line of what was open.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		how string
		end func(s *sandbox)
	}{
		{"leash", func(s *sandbox) { s.leash.Close() }},
		{"SIGTERM", func(s *sandbox) { syscall.Kill(os.Getpid(), syscall.SIGTERM) }},
		{"SIGINT", func(s *sandbox) { syscall.Kill(os.Getpid(), syscall.SIGINT) }},
		{"dns", func(s *sandbox) { s.dns.file.Close() }},
		{"ctl", func(s *sandbox) { s.ctl.Close() }},
	} {
		t.Run(c.how, func(t *testing.T) {
			s := start(t, "a.example:7")
			w := s.site("a.example", 7, echo)
			conn := s.dial("a.example", 7)
			io.WriteString(conn, "hello\n")
			read(t, conn, "hello")
			for range 3 { // the second and the third are only counted, for now
				s.guest.lookup("denied.example")
			}
			c.end(s)
			if err := s.wait(); err != nil {
				t.Errorf("it ended: %v", err)
			}
			if endedPlainly(conn) {
				t.Error("the guest saw a plain end")
			}
			s.log.wait()
			s.has("close tcp a.example " + w.at.String() + " gate-end - up=6 down=6")
			s.hasN(3, "deny dns denied.example - no-allow-rule -")
			all := s.log.all()
			if len(all) < 3 || !matches(all[0], "note run test - gate-start -") || !matches(all[len(all)-1], "note run test - gate-end -") {
				t.Errorf("the log does not begin and end as it should:\n%s", s.log.String())
			}
		})
	}
}

// A dns wire that breaks off in the middle of a record is a fault.
func TestEndsBroken(t *testing.T) {
	s := start(t)
	s.dns.file.Write([]byte("s 1 "))
	s.dns.file.Close()
	if err := s.wait(); err == nil || !strings.Contains(err.Error(), "dns wire") {
		t.Errorf("it ended: %v", err)
	}
}

// TestEndsUnmet: while the gate waits for sb-dns the leash ends it too, and it
// was never ready.
func TestEndsUnmet(t *testing.T) {
	s := &sandbox{t: t, done: make(chan error, 1)}
	before := open()
	m, set := policyOf(t)
	var w wires
	var frames, dns, leash, ready *os.File
	w.frames, frames = s.pair("frames", fd.Dgram)
	w.dns, dns = s.pair("dns", fd.Stream)
	w.leash, leash = s.pair("leash", fd.Stream)
	w.ready, ready = s.pair("ready", fd.Stream)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	w.audit = log
	go func() { s.done <- serve(m, set, w) }()
	if line, err := bufio.NewReader(dns).ReadString('\n'); err != nil || !strings.HasPrefix(line, "hello ") {
		t.Errorf("the gate says %q, %v", line, err)
	}
	leash.Close()
	if err := s.wait(); err != nil {
		t.Errorf("it ended: %v", err)
	}
	if err := fd.WaitReady(ready, say.Version); err != io.ErrUnexpectedEOF {
		t.Errorf("ready: %v", err)
	}
	for _, f := range []*os.File{frames, dns, ready} {
		f.Close()
	}
	if left := before.leaks(); left != "" {
		t.Error(left)
	}
}

func TestReady(t *testing.T) {
	s := start(t) // which waits for the line, of this version
	if a := s.ask(ctl.Message{{Key: "ask", Value: "alive"}}); a.Get("ok") != "alive" {
		t.Errorf("alive: %v", a)
	}
	line := s.has("note run test - gate-start -")
	if line.Word("version") != say.Version || line.Word("rules") != "0" || len(line.Word("manifest")) != 16 {
		t.Errorf("%s", line)
	}
}

// TestRulesReplaced: flows that the new rules do not allow are cut, at once and
// with their line; the others go on; what is new is judged by the new rules.
func TestRulesReplaced(t *testing.T) {
	s := start(t, "a.example:7", "b.example:7", "c.example:8/raw", "d.example:7")
	a, b := s.site("a.example", 7, echo), s.site("b.example", 7, echo)
	d := s.site("d.example", 7, echo)
	c8 := s.site("c.example", 8, echo)
	ca, cb, cc, cd := s.dial("a.example", 7), s.dial("b.example", 7), s.dial("c.example", 8), s.dial("d.example", 7)
	for _, c := range []io.ReadWriter{ca, cb, cc, cd} {
		io.WriteString(c, "x\n")
		io.ReadFull(c, make([]byte, 2))
	}
	// What passed unproven is cut where it would have to be proven now.
	s.rules(1, "b.example:7", "c.example:8/raw", "d.example", "new.example")
	s.has("close tcp a.example " + a.at.String() + " policy-changed - up=2 down=2")
	s.has("close tcp d.example " + d.at.String() + " policy-changed - up=2 down=2")
	if endedPlainly(ca) || endedPlainly(cd) {
		t.Error("a plain end")
	}
	for _, c := range []io.ReadWriter{cb, cc} {
		io.WriteString(c, "y\n")
		io.ReadFull(c, make([]byte, 2))
	}
	s.hasNot("close tcp b.example " + b.at.String())
	s.hasNot("close tcp c.example " + c8.at.String())
	if _, code, err := s.guest.lookup("a.example"); err != nil || code != 3 {
		t.Errorf("the name that is gone: %v %v", code, err)
	}
	s.site("new.example", 443, drain)
	s.hello("new.example")
	s.has("note run - - policy-changed - generation=1")

	// A rule that is not understood, or an old generation, changes nothing.
	for _, m := range []ctl.Message{
		{{Key: "ask", Value: "rules"}, {Key: "generation", Value: "2"}, {Key: "allow", Value: "not a rule"}},
		{{Key: "ask", Value: "rules"}, {Key: "generation", Value: "1"}},
		{{Key: "ask", Value: "rules"}},
		{{Key: "ask", Value: "something"}},
		{{Key: "nothing", Value: "asked"}},
	} {
		if a := s.ask(m); a.Get("error") == "" {
			t.Errorf("%v: %v", m, a)
		}
	}
	s.hello("new.example")
	// No rules at all close everything.
	s.rules(3)
	s.has("close tcp b.example " + b.at.String() + " policy-changed - up=4 down=4")
	s.has("close tcp c.example " + c8.at.String() + " policy-changed - up=4 down=4")
}

// A flow under a /raw rule is cut when the port alone remains: it may be TLS.
func TestRulesRawToPort(t *testing.T) {
	s := start(t, "a.example:7/raw", "b.example:7")
	w := s.secure(7, "a.example", "denied.example")
	s.site("b.example", 7, echo)
	s.passesTLS("a.example", 7, "denied.example")
	s.has("close tcp a.example " + w.at.String() + " done -")
	c, b := s.dial("a.example", 7), s.dial("b.example", 7)
	c.Write(firstBytes(t, client("denied.example")))
	c.Read(make([]byte, 1))
	io.WriteString(b, "x\n")
	read(t, b, "x")
	s.rules(1, "a.example:7", "b.example:7")
	s.has("close tcp a.example " + w.at.String() + " policy-changed -")
	io.WriteString(b, "x\n")
	read(t, b, "x")
}

// TestFrames: whatever is on the wire, it is dropped and counted, and a good flow
// completes afterwards.
func TestFrames(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example")
	s.secure(443, "a.example")
	at := s.handle("a.example")
	good := s.syn(1, netipPort(at, 443))
	change := func(i int, with ...byte) []byte {
		b := append([]byte(nil), good...)
		copy(b[i:], with)
		return b
	}
	bad := map[string][][]byte{
		"frame-malformed": {{}, good[:5], good[:13], good[:14], good[:33], append(good, make([]byte, 1500)...), change(16, 0xff, 0xff), change(16, 0, 4), change(46, 0xf0)},
		"frame-source":    {change(6, 2), change(26, 8, 8, 8, 8), change(26, s.guest.net.Gateway().AsSlice()...)},
		"frame-ethertype": {change(12, 0x86, 0xdd), change(12, 0x81, 0), change(12, 0, 40), change(12, 0x88, 0xcc)},
		"frame-fragment":  {change(14, 0x46), change(20, 0x20), change(20, 0, 1), change(20, 0x80)},
		"frame-protocol":  {change(23, 132), change(23, 47), change(23, 50), change(23, 2)},
		"frame-multicast": {change(30, 224, 0, 0, 251), change(30, 255, 255, 255, 255), change(30, 198, 18, 0, 255), change(0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)},
		"inside-subnet":   {change(30, s.guest.net.Guest().AsSlice()...), change(30, 127, 0, 0, 1), change(30, 0, 1, 2, 3)},
	}
	const times = 40
	for range times {
		for _, frames := range bad {
			for _, f := range frames {
				if len(f) > 0 {
					s.send(f)
				}
			}
		}
	}
	for why, frames := range bad {
		n := int64(0)
		for _, f := range frames {
			if len(f) > 0 {
				n++
			}
		}
		s.hasN(n*times, "deny frame - - "+why+" -")
	}
	if n := len(s.log.all()); n > 100 {
		t.Errorf("%d lines for the flood", n)
	}
	s.passesTLS("a.example", 443, "a.example")
	s.hasNot("allow tcp a.example 198.18.0.2")
}

// TestD12FlagSweep: every combination of TCP flags, on a handle and on nothing;
// the gate still serves a good flow.
func TestD12FlagSweep(t *testing.T) {
	s := start(t, "a.example", "b.example")
	s.inexact = true
	s.secure(443, "a.example")
	s.site("b.example", 443, drain)
	at := s.handle("b.example")
	s.guest.dropTCP(1000, 3000) // its stack knows nothing of these
	for flags := range 256 {
		for i, to := range []string{at.String(), "198.18.77.77", "198.18.0.1"} {
			f := s.syn(uint16(1000+4*flags+i), netipPort(mustAddr(to), 443))
			f[47] = byte(flags)
			s.send(f)
			if flags%16 == 2 {
				s.send(f) // the same again
			}
		}
	}
	s.passesTLS("a.example", 443, "a.example")
	if n := s.log.count("deny tcp - 198.18.77.77:443 unresolved-address -"); n == 0 {
		t.Error("no SYN among them was refused")
	}
}
