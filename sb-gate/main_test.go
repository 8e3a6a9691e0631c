//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inWorld tells a copy of the test program that it has a network of its own.
const inWorld = "SB_GATE_TEST_WORLD"

// TestMain runs the tests in namespaces of their own, in which every address of some
// ranges is this host's: servers on public, private and other addresses, none of
// which belongs to an interface. An ordinary user can have one too.
func TestMain(m *testing.M) {
	switch os.Getenv(inWorld) {
	case "":
		os.Exit(enterWorld())
	case "confined":
		os.Exit(confinedMain())
	}
	if err := settle(); err != nil {
		fmt.Fprintln(os.Stderr, "make the tests' network:", err)
		os.Exit(1)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGWINCH) // starts the runtime's own goroutine for them
	flag.Parse()
	flag.Set("test.parallel", "16") // those that run at the same time only wait
	before := open()
	code := m.Run()
	if left := before.leaks(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "after all tests:", left)
		code = 1
	}
	os.Exit(code)
}

func enterWorld() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inWorld+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	runtime.LockOSThread()
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "make a network namespace for the tests:", err)
		return 1
	}
	return 0
}

// settle makes the ranges local. An address of a local route that no interface
// has is public to the gate, as one far away would be.
func settle() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up",
		"route add local 45.67.0.0/16 dev lo",
		"route add local 10.1.0.0/16 dev lo",
		"route add local 169.254.169.254/32 dev lo",
		"-6 route add local 2600:4567::/32 dev lo",
		"addr add 45.68.0.1/32 dev lo", // this one is the host's own
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %v: %s", line, err, out)
		}
	}
	return nil
}

// opened is what a process holds that could be left behind.
type opened struct{ goroutines, files int }

func open() opened {
	names, _ := os.ReadDir("/proc/self/fd")
	return opened{runtime.NumGoroutine(), len(names)}
}

// leaks waits until no more is held than at the time of before, and says what is
// left after a while.
func (before opened) leaks() string {
	var now opened
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if now = open(); now.goroutines <= before.goroutines && now.files <= before.files {
			return ""
		}
	}
	var stacks strings.Builder
	pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	return fmt.Sprintf("%d goroutines and %d descriptors are left, of %d and %d\n%s",
		now.goroutines, now.files, before.goroutines, before.files, stacks.String())
}
