package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/manifest"
	"sb/sb-vm/machine"
)

// fakeGuest is a machine whose guest is a function; it says what it was asked.
func fakeGuest(t *testing.T, answer func(machine.Request) machine.Answer) (*vm, chan machine.Request) {
	t.Helper()
	host, guest := net.Pipe()
	t.Cleanup(func() { host.Close(); guest.Close() })
	v := &vm{control: host, conn: machine.NewConn(host), done: make(chan error, 1), console: &console{}}
	asked := make(chan machine.Request, 10)
	go func() {
		for c := machine.NewConn(guest); ; {
			var r machine.Request
			if c.Receive(&r) != nil {
				return
			}
			asked <- r
			if a := answer(r); a != (machine.Answer{}) {
				c.Send(a)
			}
			if r.Do == "poweroff" {
				v.done <- nil
			}
		}
	}()
	return v, asked
}

func testManifest(t *testing.T) *manifest.Manifest {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 5<<30); err != nil {
		t.Fatal(err)
	}
	return &manifest.Manifest{Name: "x", Network: manifest.Network{Pool: netip.MustParsePrefix("198.18.0.0/15"), MTU: 1500},
		Machine: manifest.Machine{Disk: disk},
		Shares:  []manifest.Share{{Host: "/a", Guest: "/b"}, {Host: "/c", Guest: "/d", ReadOnly: true}}}
}

func TestConfigure(t *testing.T) {
	v, asked := fakeGuest(t, func(machine.Request) machine.Answer { return machine.Answer{Done: true} })
	before := time.Now().UnixNano()
	m := testManifest(t)
	if err := v.configure(m); err != nil {
		t.Fatal(err)
	}
	r := <-asked
	first, second := guestShare(0), guestShare(1)
	first.Target, second.Target, second.ReadOnly = "/b", "/d", true
	want := &machine.Configure{Hostname: "x", Address: "198.18.0.2/30", Gateway: "198.18.0.1", MTU: 1500, DiskSize: 5 << 30,
		Shares: []machine.Share{first, second}}
	if r.Do != "configure" || !reflect.DeepEqual(r.Configure, want) {
		t.Errorf("it was asked to %s %+v, want %+v", r.Do, r.Configure, want)
	}
	if r.Time < before || r.Time > time.Now().UnixNano() || len(r.Entropy) != 64 || string(r.Entropy) == string(make([]byte, 64)) {
		t.Errorf("the time is %d, the entropy %x", r.Time, r.Entropy)
	}
	if first.Port+first.Tag == second.Port+second.Tag {
		t.Error("two shares have one name")
	}
}

func TestConfigureFails(t *testing.T) {
	m := testManifest(t)
	v, _ := fakeGuest(t, func(machine.Request) machine.Answer { return machine.Answer{Error: "no \x1b[31m disk"} })
	if err := v.configure(m); err == nil || !strings.Contains(err.Error(), `the guest says: "no \x1b[31m disk"`) {
		t.Errorf("a guest that says no: %v", err)
	}
	v, _ = fakeGuest(t, func(machine.Request) machine.Answer { return machine.Answer{Done: true} })
	m.Machine.Disk += "x"
	if err := v.configure(m); err == nil {
		t.Error("a disk that is not there: no error")
	}
	m = testManifest(t)
	v, asked := fakeGuest(t, func(machine.Request) machine.Answer { return machine.Answer{} })
	go func() { <-asked; v.control.Close() }()
	if err := v.configure(m); err == nil {
		t.Error("a guest that dies: no error")
	}
}

// A guest that powers off is waited for, another one is killed.
func TestEnd(t *testing.T) {
	v, asked := fakeGuest(t, func(machine.Request) machine.Answer { return machine.Answer{Done: true} })
	v.kill = func() { t.Error("a guest that powers off was killed") }
	if err := v.end(); err != nil {
		t.Error(err)
	}
	if r := <-asked; r.Do != "poweroff" {
		t.Errorf("it was asked to %s", r.Do)
	}

	host, _ := net.Pipe() // nobody reads
	v = &vm{control: host, conn: machine.NewConn(host), done: make(chan error, 1), console: &console{}}
	killed := time.Time{}
	v.kill = func() { killed = time.Now(); v.done <- errors.New("killed") }
	start := time.Now()
	if err := v.end(); err != nil || killed.Sub(start) < endTime {
		t.Errorf("a guest that does not: %v, killed after %v", err, killed.Sub(start))
	}
}

func TestExplain(t *testing.T) {
	v := &vm{console: &console{}}
	if err := v.explain(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	fmt.Fprintf(v.console, "%s\n\n  last words \n", strings.Repeat("x", 3*tailShown))
	for _, gone := range []error{syscall.ECONNRESET, &os.PathError{Op: "write", Path: "machine", Err: syscall.EPIPE}} {
		if err := v.explain(gone); err.Error() != "the machine ended" {
			t.Errorf("%v: %v", gone, err)
		}
	}
	err := v.explain(fmt.Errorf("ask: %w", io.EOF))
	if err.Error() != "the machine ended" || !strings.HasSuffix(hints(err), "\nconsole: last words") || len(hints(err)) > tailShown+100 {
		t.Errorf("%v, hints of %d bytes: %.100s", err, len(hints(err)), hints(err))
	}
}
