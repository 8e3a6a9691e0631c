//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// inHost tells a copy of the test program that it has a host of its own.
const inHost = "SB_DNS_TEST_HOST"

// etc is the files of the resolver as the tests want them: a search list, which
// no name may be tried with, and names of the hosts file.
var etc = map[string]string{
	"resolv.conf":   "nameserver 127.0.0.1\nsearch corp.example\noptions timeout:1 attempts:2 ndots:3\n",
	"hosts":         "127.0.0.1 localhost\n10.9.8.7 inside.example printer\n::1 localhost\n",
	"nsswitch.conf": "hosts: files dns\n",
}

// TestMain runs the tests in a mount namespace in which /etc holds those files
// alone. An ordinary user can have one too.
func TestMain(m *testing.M) {
	switch os.Getenv(inHost) {
	case "":
		os.Exit(enterHost())
	case "confined":
		os.Exit(confinedMain())
	}
	if err := settle(); err != nil {
		fmt.Fprintln(os.Stderr, "make the tests' host:", err)
		os.Exit(1)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGWINCH) // starts the runtime's own goroutine for them
	os.Exit(m.Run())
}

func enterHost() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inHost+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	runtime.LockOSThread() // the child ends with the thread that started it
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "make a mount namespace for the tests:", err)
		return 1
	}
	return 0
}

func settle() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", "/etc", "tmpfs", 0, "mode=0755,size=64k"); err != nil {
		return err
	}
	for name, text := range etc {
		if err := os.WriteFile(filepath.Join("/etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
