//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// confinedMain is a copy of the test program that does what sb-dns does before it
// is ready, and says what it can do before and after.
func confinedMain() int {
	file, addr := os.Getenv("SB_DNS_TEST_FILE"), os.Getenv("SB_DNS_TEST_ADDR")
	opens := func(path string) error {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		return err
	}
	dials := func(network string) error {
		c, err := net.Dial(network, addr)
		if err == nil {
			c.Close()
		}
		return err
	}
	try := func(when string) {
		fmt.Println(when, "open:", reasonOf(opens(file)))
		fmt.Println(when, "write:", reasonOf(os.WriteFile(file+".new", nil, 0o600)))
		fmt.Println(when, "exec:", reasonOf(exec.Command("/bin/true").Run()))
		fmt.Println(when, "hosts:", reasonOf(opens("/etc/hosts")))
		fmt.Println(when, "udp:", reasonOf(dials("udp")))
		fmt.Println(when, "tcp:", reasonOf(dials("tcp")))
	}
	try("before")
	if err := confineSelf(); err != nil {
		fmt.Println(err)
		return 1
	}
	try("after")
	return 0
}

func reasonOf(err error) string {
	switch {
	case err == nil:
		return "yes"
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EPERM):
		return "refused"
	}
	return err.Error()
}

// TestConfined: once its wires are open sb-dns opens the resolver's files and no
// others, and starts no program; it still reaches a nameserver.
func TestConfined(t *testing.T) {
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
	cmd.Env = append(os.Environ(), inHost+"=confined", "SB_DNS_TEST_FILE="+file, "SB_DNS_TEST_ADDR="+ln.Addr().String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	for _, what := range []string{"open", "write", "exec", "hosts", "udp", "tcp"} {
		if !strings.Contains(string(out), "before "+what+": yes\n") {
			t.Errorf("before it is confined, %s does not work", what)
		}
	}
	if stderr.Len() > 0 {
		t.Logf("this kernel lacks something, so only the rest is looked at: %s", stderr.String())
	}
	for _, line := range []string{"open: refused", "write: refused", "exec: refused", "hosts: yes", "udp: yes", "tcp: yes"} {
		if stderr.Len() == 0 && !strings.Contains(string(out), "after "+line+"\n") {
			t.Errorf("after it was confined, not %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// The directories of the resolver's files, and of what they are links to; none
// that is not there.
func TestResolverDirs(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"etc", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(dir, "run/stub.conf"), nil, 0o644)
	os.Symlink("../run/stub.conf", filepath.Join(dir, "etc/resolv.conf"))
	got := resolverDirs([]string{filepath.Join(dir, "etc/resolv.conf"), filepath.Join(dir, "etc/hosts"), filepath.Join(dir, "none/hosts")})
	if want := []string{filepath.Join(dir, "etc"), filepath.Join(dir, "run")}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
