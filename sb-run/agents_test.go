package main

import (
	"fmt"
	"testing"
)

// TestEnvironmentsOf: those of the profiles that are named, all without a name; a name
// of none chooses nothing.
func TestEnvironmentsOf(t *testing.T) {
	all := []image{{Ref: "env:a-0123"}, {Ref: "env:a-b-0123"}, {Ref: "env:a-4567"}}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, "[env:a-0123 env:a-b-0123 env:a-4567] <nil>"},
		{[]string{"a"}, "[env:a-0123 env:a-4567] <nil>"},
		{[]string{"a-b"}, "[env:a-b-0123] <nil>"},
		{[]string{"a", "nope"}, "[] no environment of nope is there"},
	} {
		chosen, err := environmentsOf(all, c.names)
		refs := []string{}
		for _, im := range chosen {
			refs = append(refs, im.Ref)
		}
		if got := fmt.Sprint(refs, " ", err); got != c.want {
			t.Errorf("%q: %s, want %s", c.names, got, c.want)
		}
	}
}

// TestTail: the last lines are kept, each cut, and a line without an end too.
func TestTail(t *testing.T) {
	var out tail
	for i := range 50 {
		fmt.Fprintf(&out, "line %d\r\n\n", i)
	}
	out.Write(append(make([]byte, 10*tailLine), "end"...))
	got := out.lines()
	if len(got) != tailLines+1 || got[0] != "line 30" || len(got[tailLines]) != tailLine {
		t.Errorf("%d lines, the first %q", len(got), got[0])
	}
}
