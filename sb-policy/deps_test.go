package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A filter opens no connection and starts no process: what could is not linked.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "sb/lib/rule") {
		t.Fatalf("sb/lib/rule is not among the %d packages: the list is of something else", len(deps))
	}
	for _, bad := range []string{"net/http", "os/exec", "crypto/tls", "plugin"} {
		if slices.Contains(deps, bad) {
			t.Errorf("sb-policy links %s", bad)
		}
	}
	for _, d := range deps {
		first, _, _ := strings.Cut(d, "/")
		if strings.Contains(first, ".") && !slices.ContainsFunc(strangers, func(s string) bool { return strings.HasPrefix(d, s) }) {
			t.Errorf("sb-policy links %s, which nobody argued for", d)
		}
	}
}

// strangers are the modules that are not ours.
var strangers = []string{"github.com/BurntSushi/toml", "github.com/spf13/pflag", "golang.org/x/net/", "golang.org/x/sys/", "golang.org/x/text/"}
