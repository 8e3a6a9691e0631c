package netns

import (
	"strings"
	"testing"

	"sb/testscripts/world"
)

func TestFirst(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	out, err := l.in("curl", "-sS", "--max-time", "10", "http://allowed.example.org/x")
	if err != nil || !strings.HasPrefix(out, "served") {
		t.Errorf("allowed: %q, %v", out, err)
	}
	out, _ = l.in("curl", "-sS", "--max-time", "10", "http://denied.example.org/x")
	if !strings.Contains(out, "resolve") {
		t.Errorf("denied: %q", out)
	}
	out, _ = l.in("probe", "tcp", world.Never+":80")
	if !strings.HasPrefix(out, "refused") {
		t.Errorf("literal: %q", out)
	}
}
