package main

import (
	"slices"
	"strings"
	"testing"

	"sb/lib/rule"
	"sb/lib/say"
)

// What is understood is a name or an address, never both, and no rule allows it
// by itself; what is not understood is a usage error.
func FuzzAsk(f *testing.F) {
	for _, s := range []string{"example.com", "example.com.:443", "[2001:db8::1]:53/udp", "::1", "10.0.0.1:80", "dns:_a.example", "a.example:22@10.0.0.1", "a:b:c", "http://x", "/udp", ":1", "[]:1", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ask(text)
		if err != nil {
			if say.Code(err) != say.CodeUsage {
				t.Errorf("%q: %v has the code %d", text, err, say.Code(err))
			}
			return
		}
		if (q.name == rule.Name{}) == !q.addr.IsValid() {
			t.Errorf("%q is the name %q and the address %v", text, q.name, q.addr)
		}
		if strings.ContainsAny(text, " \t\n") {
			t.Errorf("%q would be two words of the answer", text)
		}
		if v, _ := q.judge(rule.Compile(nil, nil)); v.Allow {
			t.Errorf("%q is allowed by nothing: %+v", text, v)
		}
	})
}

// However what is written is cut, the lines are the same.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), uint8(1))
	f.Add([]byte(strings.Repeat("x", 5000)+"\ny\n"), uint8(255))
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		lines := func(step int) (all []string) {
			s := &splitter{name: "x", each: func(_ string, line []byte) error {
				all = append(all, string(line))
				return nil
			}}
			for rest := text; len(rest) > 0; {
				n := min(step, len(rest))
				if _, err := s.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := s.end(); err != nil {
				t.Fatal(err)
			}
			return all
		}
		whole, cut := lines(len(text)), lines(int(step)+1)
		if !slices.Equal(whole, cut) {
			t.Errorf("%q and, cut, %q", whole, cut)
		}
		want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(text) > 0 && len(whole) != len(want) {
			t.Errorf("%d lines, want %d", len(whole), len(want))
		}
		for i, line := range whole {
			if len(line) > 2049 || !strings.HasPrefix(want[i], line) || len(want[i]) < 2049 && line != want[i] {
				t.Errorf("line %d is %q, want %q", i+1, line, want[i])
			}
		}
	})
}
