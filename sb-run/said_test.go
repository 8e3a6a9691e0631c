package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestSaid: what a child says to people passes through, line by line and safe;
// its errors and hints are kept for its end.
func TestSaid(t *testing.T) {
	const text = "sb-x: warning: one\nsb-x: error: first\nsb-x: error: second\nsb-x: hint: do this\nsb-x: two: error: not one of its own\nother: error: nor this\n\x1b[31mred\nlast without end"
	const passed = "sb-x: warning: one\nsb-x: two: error: not one of its own\nother: error: nor this\n" + `\x1b[31mred` + "\nlast without end\n"
	for _, piece := range []int{1, 3, 7, len(text)} {
		var out bytes.Buffer
		s := &said{name: "sb-x", to: &out}
		for rest := text; rest != ""; {
			n := min(piece, len(rest))
			s.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		s.flush()
		words, hints := s.words()
		if out.String() != passed || words != "first\nsecond" || fmt.Sprint(hints) != "[do this]" {
			t.Errorf("in pieces of %d: %q, %q, %q", piece, out.String(), words, hints)
		}
	}
}

// TestSaidBounds: a child that says too much is kept in part: its first errors
// and its last hints.
func TestSaidBounds(t *testing.T) {
	var out bytes.Buffer
	s := &said{name: "sb-x", to: &out}
	for n := range 1000 {
		fmt.Fprintf(s, "sb-x: error: e%d\nsb-x: hint: h%d\n", n, n)
	}
	words, hints := s.words()
	if !strings.HasPrefix(words, "e0\ne1\n") || strings.Count(words, "\n") != maxSaidErrs-1 || len(hints) != maxSaidHints || hints[maxSaidHints-1] != "h999" {
		t.Errorf("%q, %q", words, hints)
	}
	s.Write(bytes.Repeat([]byte("x"), 10*maxSaidLine+5))
	if len(s.part) >= maxSaidLine {
		t.Errorf("%d bytes of a line are held", len(s.part))
	}
	s.flush()
	if got := strings.Count(out.String(), "x"); got != 10*maxSaidLine+5 {
		t.Errorf("%d bytes of the long line passed", got)
	}
}

// TestChildEnd: how a child ended, in its own words where it has any.
func TestChildEnd(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0":        "sb-x ended by itself",
		"exit 3":        "sb-x ended: exit status 3",
		"kill -KILL $$": "sb-x ended: signal: killed",
		"echo 'sb-x: error: no room' >&2; exit 1":                        "sb-x: no room",
		"echo 'sb-x: error: no room' >&2; echo 'sb-x: hint: a' >&2":      "sb-x: no room; a",
		"printf 'sb-x: error: not ended' >&2; exit 1":                    "sb-x: not ended",
		"echo 'sb-x: hint: a' >&2; echo 'sb-x: hint: b' >&2; kill -9 $$": "sb-x ended: signal: killed; a; b",
	} {
		c := shellChild(t, script)
		<-c.done
		if got := withHint(c.failed(c.end())); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}
