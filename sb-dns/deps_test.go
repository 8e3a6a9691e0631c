//go:build linux

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Sb-dns holds no network stack, no HTTP and no TLS and starts no program: what
// could do that is not linked, and nothing is that nobody argued for.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "sb/lib/rule") {
		t.Fatalf("sb/lib/rule is not among the %d packages: the list is of something else", len(deps))
	}
	for _, bad := range []string{"net/http", "net/rpc", "crypto/tls", "golang.org/x/net/http2", "os/exec", "os/user", "plugin", "encoding/gob", "html/template", "text/template"} {
		if slices.Contains(deps, bad) {
			t.Errorf("sb-dns links %s", bad)
		}
	}
	for _, d := range deps {
		first, _, _ := strings.Cut(d, "/")
		if strings.Contains(first, ".") && !slices.ContainsFunc(strangers, func(s string) bool { return strings.HasPrefix(d, s) }) {
			t.Errorf("sb-dns links %s, which nobody argued for", d)
		}
	}
}

// strangers are the modules that are not ours.
var strangers = []string{
	"golang.org/x/net/", "golang.org/x/sys/", "golang.org/x/text/", // DNS messages, system calls, IDNA
	"github.com/BurntSushi/toml", "github.com/spf13/pflag",
	"github.com/landlock-lsm/go-landlock/", "kernel.org/pub/linux/libs/security/libcap/psx", // confinement
}
