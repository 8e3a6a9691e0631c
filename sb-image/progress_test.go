package main

import "testing"

func TestLine(t *testing.T) {
	p := &progress{name: "docker.io/library/debian:latest"}
	for width, want := range map[int]string{
		0:  "docker.io/library/debian:latest: 1 MB",
		80: "docker.io/library/debian:latest: 1 MB",
		20: "debian:latest: 1 MB",
		7:  ": 1 MB",
		2:  ": 1 MB",
	} {
		if got := p.line(width, "1 MB"); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}

// TestNoProgress: where nobody watches there is no line, and it is counted all the same.
func TestNoProgress(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	p := newProgress("x", []layer{{size: 5}, {size: 7}})
	if p.on || p.total != 12 {
		t.Errorf("%+v", p)
	}
	if p := newProgress("x", []layer{{size: 5}, {size: -1}}); p.total != 0 {
		t.Errorf("%+v", p)
	}
	p.add(3)
	p.end()
}
