//go:build linux

package main

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
)

func num(n int) string { return strconv.Itoa(n) }

// readAll reads until the other side ends, however that is.
func readAll(c net.Conn) string {
	c.SetReadDeadline(time.Now().Add(15 * time.Second))
	b, _ := io.ReadAll(c)
	return string(b)
}

// read reads a line that must begin with want.
func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(15 * time.Second))
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := c.Read(b)
		if n > 0 && b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		if n > 0 {
			break
		}
		if err != nil {
			t.Fatalf("read %q, want a line that begins with %q: %v", line, want, err)
		}
	}
	if !strings.HasPrefix(string(line), want) {
		t.Fatalf("read %q, want %q", line, want)
	}
}

// ended reads until the end and says whether it was a plain one.
func endedPlainly(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(15 * time.Second))
	_, err := io.Copy(io.Discard, c)
	return err == nil
}

// within waits for something to become so.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func netipPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
