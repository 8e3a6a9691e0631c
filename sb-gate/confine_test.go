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
	"strings"
	"syscall"
	"testing"
)

// confinedMain is a copy of the test program that does what the gate does before
// it is ready, and says what it can do before and after.
func confinedMain() int {
	file, addr := os.Getenv("SB_GATE_TEST_FILE"), os.Getenv("SB_GATE_TEST_ADDR")
	try := func(when string) {
		f, err := os.Open(file)
		if err == nil {
			f.Close()
		}
		fmt.Println(when, "open:", reasonOf(err))
		err = os.WriteFile(file+".new", nil, 0o600)
		fmt.Println(when, "write:", reasonOf(err))
		err = exec.Command("/bin/true").Run()
		fmt.Println(when, "exec:", reasonOf(err))
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		fmt.Println(when, "dial:", reasonOf(err))
		_, err = net.InterfaceAddrs()
		fmt.Println(when, "interfaces:", reasonOf(err))
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

// TestConfined: once its wires are open the gate can open no file and start no
// program, and still dials and sees the host's addresses.
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
	cmd.Env = append(os.Environ(), inWorld+"=confined", "SB_GATE_TEST_FILE="+file, "SB_GATE_TEST_ADDR="+ln.Addr().String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	for _, what := range []string{"open", "write", "exec", "dial", "interfaces"} {
		if !strings.Contains(string(out), "before "+what+": yes\n") {
			t.Errorf("before it is confined, %s does not work", what)
		}
	}
	if stderr.Len() > 0 {
		t.Logf("this kernel lacks something, so only the rest is looked at: %s", stderr.String())
	}
	for _, line := range []string{"open: refused", "write: refused", "exec: refused", "dial: yes", "interfaces: yes"} {
		if stderr.Len() == 0 && !strings.Contains(string(out), "after "+line+"\n") {
			t.Errorf("after it was confined, not %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
