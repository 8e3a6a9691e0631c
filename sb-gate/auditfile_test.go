//go:build linux

package main

import (
	"bufio"
	"bytes"

	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/lib/ctl"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// TestG19FullDisk: a log that cannot be written lets nothing new out. What is
// open goes on, and no line is missing when there is room again.
func TestG19FullDisk(t *testing.T) {
	none, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	room := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(room)
	if err != nil {
		t.Fatal(err)
	}
	s := startWith(t, none, "a.example:7", "b.example:53/udp", "c.example")
	w := s.site("a.example", 7, echo)
	u := s.datagramSite("b.example", 53)
	s.dns.at("c.example", newAddr())
	within(t, 5*time.Second, "nothing is let out", func() bool {
		c, err := s.guest.dial(netipPort(s.handle("a.example"), 7))
		if err != nil {
			return true
		}
		c.Close()
		return false
	})
	visits := w.visits()
	c := s.guest.datagrams(netipPort(s.handle("b.example"), 53))
	s.unreachable(c)
	c.Close()
	asked := s.dns.looked.Load()
	s.refusesPing(s.guest.tap(), s.handle("c.example"), 1, header.ICMPv4AdminProhibited)
	if s.dns.looked.Load() != asked {
		t.Error("it was asked where the pinged host is")
	}
	if a := s.ask(ctl.Message{{Key: "ask", Value: "audit"}}); a.Get("error") == "" {
		t.Errorf("a new log without a file: %v", a)
	}
	if a := s.ask(ctl.Message{{Key: "ask", Value: "audit"}}, file); a.Get("ok") != "audit" {
		t.Errorf("a new log: %v", a)
	}
	file.Close()
	conn := s.dial("a.example", 7)
	io.WriteString(conn, "x\n")
	read(t, conn, "x")
	if w.visits() != visits+1 || u.count() != 0 {
		t.Errorf("%d visits after %d, %d datagrams", w.visits(), visits, u.count())
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	s.log = *readLog(t, room)
	s.log.agrees(t)
	for _, pattern := range []string{"note run test - gate-start -", "deny tcp a.example * audit-unavailable -",
		"deny udp b.example * audit-unavailable -", "deny icmp c.example * audit-unavailable -",
		"close tcp a.example " + w.at.String() + " gate-end - up=2 down=2", "note run test - gate-end -"} {
		if s.log.count(pattern) == 0 {
			t.Errorf("no line is %q:\n%s", pattern, s.log.String())
		}
	}
}

// readLog reads a log that is complete, in one file or several.
func readLog(t *testing.T, paths ...string) *auditLog {
	t.Helper()
	l := &auditLog{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.TrimLeft(text, "\x00") // the hole of a file that only seems to be large
		for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
			line, err := audit.Parse(in.Bytes())
			if err != nil {
				l.bad = append(l.bad, in.Text())
			}
			l.lines = append(l.lines, line)
		}
	}
	return l
}

// TestG19NoSpace: a file system that is full in the middle of a line. When there
// is room again, there or in another file, the log goes on, every line whole and
// none missing.
func TestG19NoSpace(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		defer syscall.Unmount(dir, syscall.MNT_DETACH)
		filler := filepath.Join(dir, "filler")
		if err := os.WriteFile(filler, make([]byte, 60<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "log")
		log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		s := startWith(t, log, "a.example")
		w := s.site("a.example", 443, drain)
		at := netipPort(s.handle("a.example"), 443)
		opened := 0
		for ; opened < 100; opened++ {
			c, err := s.guest.dial(at)
			if err != nil {
				break
			}
			c.Write(firstBytes(t, client("a.example")))
			c.CloseWrite()
			readAll(c)
			c.Close()
		}
		if opened == 0 || opened == 100 {
			t.Fatalf("%d flows before the disk was full", opened)
		}
		files := []string{path}
		if replaced {
			files = append(files, filepath.Join(t.TempDir(), "next"))
			next, err := os.Create(files[1])
			if err != nil {
				t.Fatal(err)
			}
			s.ask(ctl.Message{{Key: "ask", Value: "audit"}}, next)
			next.Close()
		} else if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		within(t, 5*time.Second, "flows are let out again", func() bool {
			c, err := s.guest.dial(at)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		if err := s.end(); err != nil {
			t.Error(err)
		}
		s.log = *readLog(t, files...)
		s.log.agrees(t)
		n := s.log.count("close tcp a.example " + w.at.String() + " * - by=guest")
		within(t, 5*time.Second, "the server has seen as many flows as are in the log", func() bool { return int64(w.visits()) == n })
		if s.log.count("deny tcp a.example * audit-unavailable -") == 0 {
			t.Error("nothing says that flows were refused meanwhile")
		}
	}
}

// TestRotate: a log that is full asks for another, once, and goes on in it.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	first, err := os.OpenFile(filepath.Join(dir, "1"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Truncate(32<<20 - 200); err != nil {
		t.Fatal(err)
	}
	s := startWith(t, first, "a.example")
	w := s.site("a.example", 443, drain)
	s.hello("a.example")
	select {
	case m := <-s.events:
		if m.Get("event") != "rotate" {
			t.Errorf("event %v", m)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it does not ask for another file")
	}
	s.hello("a.example") // it goes on meanwhile
	second, err := os.Create(filepath.Join(dir, "2"))
	if err != nil {
		t.Fatal(err)
	}
	if a := s.ask(ctl.Message{{Key: "ask", Value: "audit"}}, second); a.Get("ok") != "audit" {
		t.Fatalf("%v", a)
	}
	second.Close()
	s.hello("a.example")
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if len(s.events) > 0 {
		t.Error("it asked twice")
	}
	s.log = *readLog(t, filepath.Join(dir, "1"), filepath.Join(dir, "2"))
	if n := s.log.count("close tcp a.example " + w.at.String()); n != 3 {
		t.Errorf("%d of 3 flows are in the two files:\n%s", n, s.log.String())
	}
	if text, err := os.ReadFile(filepath.Join(dir, "2")); err != nil || !strings.Contains(string(text), "gate-end") {
		t.Error("the second file does not end with the gate")
	}
}

// TestWriteErrorAtTheEnd: a log whose last lines are lost is a failure.
func TestWriteErrorAtTheEnd(t *testing.T) {
	none, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := startWith(t, none)
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "audit log") {
		t.Errorf("it ended: %v", err)
	}
}

// Files that come where none are expected are closed, not kept: the leak check of
// the test sees them.
func TestFilesUnasked(t *testing.T) {
	s := start(t)
	for _, ask := range []string{"alive", "totals", "rules", "nothing", "audit"} {
		files := make([]*os.File, 2)
		for i := range files {
			var err error
			if files[i], err = os.Open("/dev/null"); err != nil {
				t.Fatal(err)
			}
		}
		s.ask(ctl.Message{{Key: "ask", Value: ask}}, files...)
		for _, f := range files {
			f.Close()
		}
	}
	before := open()
	s.ask(ctl.Message{{Key: "ask", Value: "alive"}})
	if before.files > s.before.files+20 {
		t.Errorf("%d descriptors are open, %d were before the gate", before.files, s.before.files)
	}
}
