//go:build linux

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Nothing that would run what it is sent, or show its own memory, is linked into
// what reads a guest's requests.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "sb/lib/http1") {
		t.Fatalf("sb/lib/http1 is not among the %d packages: the list is of something else", len(deps))
	}
	for _, bad := range []string{"net/rpc", "plugin", "encoding/gob", "net/http/cgi", "net/http/pprof", "golang.org/x/net/http2"} {
		if slices.Contains(deps, bad) {
			t.Errorf("sb-broker links %s", bad)
		}
	}
}
