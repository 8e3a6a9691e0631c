//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The gate holds no HTTP server, no DNS parser and starts no program: what could do
// that is not linked, and nothing is that nobody argued for. crypto/tls is, for
// the probe of ech.go alone: whether a server takes encrypted hellos stands in its
// encrypted answer, and a handshake of our own would be worse than Go's. It reads
// what an allowed server sends, never a byte of the guest's, and only where the
// sandbox says so.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "sb/lib/rule") {
		t.Fatalf("sb/lib/rule is not among the %d packages: the list is of something else", len(deps))
	}
	for _, bad := range []string{"net/http", "net/rpc", "golang.org/x/net/dns/dnsmessage", "golang.org/x/net/http2", "os/exec", "os/user", "plugin", "encoding/gob", "html/template", "text/template"} {
		if slices.Contains(deps, bad) {
			t.Errorf("sb-gate links %s", bad)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if speaks := strings.Contains(string(text), "\"crypto/tls\"\n"); !strings.HasSuffix(f, "_test.go") && speaks != (f == "ech.go") {
			t.Errorf("%s: that it imports crypto/tls is %v", f, speaks)
		}
	}
	for _, d := range deps {
		first, _, _ := strings.Cut(d, "/")
		if strings.Contains(first, ".") && !slices.ContainsFunc(strangers, func(s string) bool { return strings.HasPrefix(d, s) }) {
			t.Errorf("sb-gate links %s, which nobody argued for", d)
		}
	}
}

// strangers are the modules that are not ours.
var strangers = []string{
	"gvisor.dev/gvisor/pkg/", "github.com/google/btree", "golang.org/x/exp/", "golang.org/x/time/", // the network stack and what it needs
	"golang.org/x/net/", "golang.org/x/sys/", "golang.org/x/text/", // ping, system calls, IDNA
	"github.com/BurntSushi/toml", "github.com/spf13/pflag",
	"github.com/landlock-lsm/go-landlock/", "kernel.org/pub/linux/libs/security/libcap/psx", // confinement
}
