package netns

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sb/lib/audit"
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
	for _, want := range []string{
		"allow dns allowed.example.org 198.18.1.0 allow-rule",
		"allow tcp allowed.example.org " + world.CDN + ":80 allow-rule",
		"deny dns denied.example.org - no-allow-rule",
		"deny tcp - " + world.Never + ":80 unresolved-address",
	} {
		if !slices.ContainsFunc(l.log(), func(x audit.Line) bool {
			return fmt.Sprintf("%s %s %s %s %s", x.Verdict, x.Gate, cmp.Or(x.Name, "-"), cmp.Or(x.Address, "-"), x.Reason) == want
		}) {
			t.Errorf("the log has no %q in %v", want, l.log())
		}
	}
}
