package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

// inners are the processes that sb-vm starts of itself.
var inners = map[string]func([]string) error{"confine": confineMain, "share": shareMain}

// boot starts the share server and QEMU.
func boot(m *manifest.Manifest, w wires) (*vm, error) {
	q, err := newQEMU(m)
	if err != nil {
		return nil, err
	}
	v := &vm{done: make(chan error, 1)}
	if v.console, err = openConsole(m.Machine.Console); err != nil {
		return nil, err
	}
	var ends endpoints
	if err := ends.open(len(m.Shares)); err != nil {
		return nil, err
	}
	defer ends.closeFar()
	v.control, v.conn = ends.near.machine, machine.NewConn(ends.near.machine)
	shares, err := startShares(m.Shares, ends.near.shares)
	if err != nil {
		return nil, err
	}
	return v, v.start(q, w, &ends, shares)
}

// endpoints are the socket pairs between sb-vm and QEMU.
type endpoints struct {
	near, far struct {
		machine, console *os.File
		shares           []*os.File
	}
}

func (e *endpoints) open(shares int) (err error) {
	if e.near.machine, e.far.machine, err = fd.Pair("machine", fd.Stream); err != nil {
		return err
	}
	if e.near.console, e.far.console, err = fd.Pair("console", fd.Stream); err != nil {
		return err
	}
	for i := range shares {
		near, far, err := fd.Pair(sharePort(i), fd.Stream)
		if err != nil {
			return err
		}
		e.near.shares, e.far.shares = append(e.near.shares, near), append(e.far.shares, far)
	}
	// sb-vm reads its ends in the runtime's poller.
	for _, f := range []**os.File{&e.near.machine, &e.near.console} {
		if *f, err = pollable(*f); err != nil {
			return err
		}
	}
	return nil
}

func (e *endpoints) closeFar() {
	e.far.machine.Close()
	e.far.console.Close()
	for i := range e.far.shares {
		e.far.shares[i].Close()
		e.near.shares[i].Close()
	}
}

// pollable returns f as a file whose reads and writes wait in the poller.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	n, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(n, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), f.Name()), nil
}

// start starts QEMU, confined, and watches it.
func (v *vm) start(q *qemu, w wires, e *endpoints, shares *exec.Cmd) error {
	view, err := q.files()
	if err != nil {
		return err
	}
	files := append([]*os.File{w.frames, w.guest, e.far.machine, e.far.console}, e.far.shares...)
	type result struct {
		cmd *exec.Cmd
		err error
	}
	started := make(chan result)
	go func() {
		// QEMU ends when the thread that started it does (PDEATHSIG), so that
		// thread is kept until QEMU has ended.
		runtime.LockOSThread()
		cmd, err := startConfined(view, q.argv(len(e.far.shares)), func(cmd *exec.Cmd) {
			cmd.ExtraFiles, cmd.Stderr = files, v.console
		})
		started <- result{cmd, err}
		if err != nil {
			return
		}
		err = cmd.Wait()
		endShares(shares)
		q.base.Close()
		v.console.Close()
		v.done <- qemuEnd(err)
	}()
	got := <-started
	if got.err != nil {
		return fmt.Errorf("start %s: %w", q.program, got.err)
	}
	go io.Copy(v.console, e.near.console)
	v.kill = func() { got.cmd.Process.Kill() }
	// QEMU holds the wires now.
	w.frames.Close()
	w.guest.Close()
	return nil
}

func qemuEnd(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("the machine ended: QEMU: %s", exit.ProcessState)
	}
	return err
}
