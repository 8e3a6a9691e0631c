// Package world is an Internet for tests: network namespaces in which the tests
// run as on a host of their own, with a nameserver, web servers and a network
// behind it, all on addresses that exist nowhere else.
//
//	host (the tests, sb-run)      world (the servers)
//	10.99.0.1 ─────── veth ────── 10.99.0.2
//	                              45.67.0.53   the nameserver
//	                              45.67.0.10   a CDN: many names on one address
//	                              45.67.0.20   another host, 45.67.0.30 one that nobody may reach
//	                              45.67.0.40   where the names of model vendors lead; a test serves it
//	                              192.168.77.10  a service of the office network
//
// Needs root.
package world

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The addresses of the world.
const (
	HostAddr   = "10.99.0.1" // the tests' own, on an interface
	Nameserver = "45.67.0.53"
	CDN        = "45.67.0.10"
	Other      = "45.67.0.20"
	Never      = "45.67.0.30" // which no test allows
	Vendors    = "45.67.0.40"
	Office     = "192.168.77.10"
)

// roleVar tells a copy of the test program what it is.
const roleVar = "SB_WORLD"

// dirVar is the world's directory, in which its servers leave what tests need.
const dirVar = "SB_WORLD_DIR"

// Main runs the tests of a package in the world: call it from TestMain with
// m.Run. It returns the exit code.
func Main(run func() int) int {
	switch os.Getenv(roleVar) {
	case "servers":
		return fail(serve(os.Getenv(dirVar)))
	case "host":
		stop, err := settle()
		if err != nil {
			return fail(err)
		}
		defer stop()
		return run()
	}
	if os.Geteuid() != 0 {
		// As package testing prints it, so that whoever counts counts it.
		fmt.Println("=== RUN   TestWorld\n    world.go: all tests here make network namespaces and need root\n--- SKIP: TestWorld (0.00s)\nPASS")
		return 0
	}
	return enter()
}

func fail(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "world:", err)
	return 1
}

// enter runs this program again as the host of a world.
func enter() int {
	dir, err := os.MkdirTemp("", "sb-world-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	// Servers and tests of other users read here.
	os.Chmod(dir, 0o755)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), roleVar+"=host", dirVar+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return fail(err)
}

// Dir is the world's directory.
func Dir() string { return os.Getenv(dirVar) }

// settle makes the networks and starts the servers.
func settle() (stop func(), err error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), roleVar+"=servers")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, line := range []string{
		"link set lo up",
		"link add sb-host type veth peer name sb-world netns " + fmt.Sprint(cmd.Process.Pid),
		"addr add " + HostAddr + "/24 dev sb-host",
		"link set sb-host up",
		"route add default via 10.99.0.2",
	} {
		if err := ip(line); err != nil {
			return nil, err
		}
	}
	if err := ownResolver(); err != nil {
		return nil, err
	}
	ready := filepath.Join(Dir(), "ready")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			return stop, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("the servers were not ready in 20 seconds")
		}
	}
}

// ServersPID is the process of the servers, by which a test enters their network.
func ServersPID() (int, error) {
	text, err := os.ReadFile(filepath.Join(Dir(), "ready"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// ownResolver puts the world's nameserver into resolv.conf, in this mount
// namespace alone.
func ownResolver() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	for name, text := range map[string]string{"/etc/resolv.conf": "nameserver " + Nameserver + "\n", "/etc/hosts": "127.0.0.1 localhost\n"} {
		path := filepath.Join(Dir(), filepath.Base(name))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		target, err := filepath.EvalSymlinks(name)
		if err != nil {
			return err
		}
		if err := syscall.Mount(path, target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", target, err)
		}
	}
	return nil
}

func ip(line string) error {
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}
