package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"sb/lib/manifest"
	"sb/sb-vm/machine"
)

// inners are the processes that sb-vm starts of itself.
var inners = map[string]func([]string) error{"confine": confineMain, "share": shareMain}

// guestShare is how the guest finds share i: on a port of its own.
func guestShare(i int) machine.Share { return machine.Share{Port: sharePort(i)} }

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
	ended := v.console.keep(e.near.console)
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
		ended()
		v.done <- qemuEnd(err)
	}()
	got := <-started
	if got.err != nil {
		return fmt.Errorf("start %s: %w", q.program, got.err)
	}
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
