//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/http1"
)

// keeper is a server that keeps what reaches it and says nothing.
type keeper struct {
	mu  sync.Mutex
	got []string
}

func (r *keeper) handle(c net.Conn) {
	b, _ := io.ReadAll(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, string(b))
}

// all waits for as many connections as there were, and returns what they got.
func (r *keeper) all(t *testing.T, n int) []string {
	t.Helper()
	within(t, 10*time.Second, fmt.Sprintf("%d connections have ended", n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.got) == n
	})
	return r.got
}

// columns reads a file of vectors: fields between " | ", the last a Go string.
func columns(t *testing.T, file string, n int) (all [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		col := strings.SplitN(line, " | ", n)
		if len(col) != n {
			t.Fatalf("%s: %q has %d columns", file, line, len(col))
		}
		if col[n-1], err = strconv.Unquote(col[n-1]); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		all = append(all, col)
	}
	return all
}

// TestC1C2C3C4C5Vectors: the whole gate does with each stream what the parser's
// vectors say, in less than a second: of what is refused nothing reaches the
// server, and the guest gets a 403 with the reason.
func TestC1C2C3C4C5Vectors(t *testing.T) {
	all := columns(t, "../lib/http1/testdata/requests.txt", 4)
	s := start(t, "a.example", "b.example")
	s.inexact = true // some are cut off
	var seen keeper
	w := s.site("a.example", 80, seen.handle)
	s.dns.at("b.example", w.at.Addr())
	asked, unlike := 0, 0
	for _, v := range all {
		what, result, stream := v[0]+" "+v[1], v[2], v[3]
		if strings.Contains(result, ":8") || v[0] == "C6" {
			continue // another port than this server's; C6 has tests of its own
		}
		asked++
		began := time.Now()
		got := s.says("a.example", 80, stream)
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: the end came after %v", what, took)
		}
		verdicts := strings.Split(result, ", ")
		last, code, _ := strings.Cut(verdicts[len(verdicts)-1], " ")
		reached := seen.all(t, asked)[asked-1]
		wellSaid := strings.HasPrefix(got, "HTTP/1.1 403 ") && strings.Contains(got, "\r\nX-Sb-Reason: "+code+"\r\n")
		if !http1.Looks([]byte(stream)) {
			wellSaid = got == "" // not even taken for HTTP: a reset
			unlike++
		}
		switch {
		case !strings.HasPrefix(stream, reached):
			t.Errorf("%s: %q reached the server", what, reached)
		case last == "refuse" && (!wellSaid || len(verdicts) == 1 && reached != "" || reached == stream):
			t.Errorf("%s: the guest got %.200q, the server %q", what, got, reached)
		case last == "break" && (got != "" || reached == stream):
			t.Errorf("%s: the guest got %.200q, the server %q", what, got, reached)
		case last == "pass" && reached != stream:
			t.Errorf("%s: the server got %q of %q", what, reached, stream)
		}
	}
	s.hasN(int64(unlike), "deny tcp a.example "+w.at.String()+" not-identified -")
	if asked < 200 {
		t.Errorf("%d streams were tried", asked)
	}
	s.passesAfter(&seen, asked)
}

// passesAfter is the control: a plain request passes as it is.
func (s *sandbox) passesAfter(seen *keeper, before int) {
	s.t.Helper()
	s.says("a.example", 80, get("a.example"))
	if got := seen.all(s.t, before+1)[before]; got != get("a.example") {
		s.t.Errorf("the control: %q", got)
	}
}

// TestC1Hosts: which hosts a request may be for, on a flow to a name.
func TestC1Hosts(t *testing.T) {
	s := start(t, "a.example", "b.example", "far.example", "*.wild.example", "not.example:81", "xn--bcher-kva.example", "!no.example", "!no.wild.example")
	var seen keeper
	w := s.site("a.example", 80, seen.handle)
	for _, name := range []string{"b.example", "no.example", "x.wild.example", "no.wild.example", "not.example", "xn--bcher-kva.example", "denied.example"} {
		s.dns.at(name, w.at.Addr())
	}
	s.site("far.example", 80, seen.handle)
	asked := 0
	for _, v := range columns(t, "testdata/hosts.txt", 3) {
		t.Run("C1/"+v[0], func(t *testing.T) {
			stream := "GET / HTTP/1.1\r\nHost: " + v[2] + "\r\n\r\n"
			asked++
			began := time.Now()
			got := s.says("a.example", 80, stream)
			if took := time.Since(began); took > time.Second {
				t.Errorf("the end came after %v", took)
			}
			reached := seen.all(t, asked)[asked-1]
			code, refused := strings.CutPrefix(v[1], "refuse ")
			switch {
			case !refused && reached != stream:
				t.Errorf("%q reached the server; the guest got %.200q", reached, got)
			case refused && (reached != "" || !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "\r\nX-Sb-Reason: "+code+"\r\n")):
				t.Errorf("%q reached the server; the guest got %.200q, not a 403 for %s", reached, got, code)
			}
		})
	}
}
