// Package confinetest shows, in tests, what a process can do before and after it has
// confined itself: a copy of the test program tries the same twice.
package confinetest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the copy is told: a file that it could read, and an address that answers.
const (
	fileVar = "SB_CONFINED_FILE"
	addrVar = "SB_CONFINED_ADDR"
)

// Probe is what a process tries; Try returns nil if it could.
type Probe struct {
	Name string
	Try  func() error
}

// Open opens a file.
func Open(name, path string) Probe {
	return Probe{name, func() error {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		return err
	}}
}

// Usual opens and writes a file of somebody's ("open", "write"), starts a program
// ("exec") and connects ("tcp").
func Usual() []Probe {
	return []Probe{
		Open("open", os.Getenv(fileVar)),
		{"write", func() error { return os.WriteFile(os.Getenv(fileVar)+".new", nil, 0o600) }},
		{"exec", func() error { return exec.Command("/bin/true").Run() }},
		Dial("tcp"),
	}
}

// Dial connects to the address that answers.
func Dial(network string) Probe {
	return Probe{network, func() error {
		c, err := net.Dial(network, os.Getenv(addrVar))
		if err == nil {
			c.Close()
		}
		return err
	}}
}

// Main is the copy: it tries, has confine confine it, and tries again. It returns the
// program's exit code.
func Main(confine func() error, probes ...Probe) int {
	try := func(when string) {
		for _, p := range probes {
			fmt.Printf("%s %s: %s\n", when, p.Name, outcome(p.Try()))
		}
	}
	try("before")
	if err := confine(); err != nil {
		fmt.Println(err)
		return 1
	}
	try("after")
	return 0
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "yes"
	case errors.Is(err, os.ErrPermission):
		return "refused"
	}
	return err.Error()
}

// Run starts the copy, with env in its environment. Before it is confined, all that
// after names must work; afterwards it must be as that says: "open: refused". A kernel
// that lacks something has the copy say so on stderr: then only the first is looked at,
// and the test is skipped.
func Run(t *testing.T, env string, after ...string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env, fileVar+"="+file, addrVar+"="+ln.Addr().String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	for _, line := range after {
		what, _, _ := strings.Cut(line, ":")
		if !strings.Contains(string(out), "before "+what+": yes\n") {
			t.Errorf("before it is confined, %s does not work", what)
		}
		if stderr.Len() == 0 && !strings.Contains(string(out), "after "+line+"\n") {
			t.Errorf("after it was confined, not %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	} else if stderr.Len() > 0 {
		t.Skipf("this kernel lacks something: %s", stderr.String())
	}
}
