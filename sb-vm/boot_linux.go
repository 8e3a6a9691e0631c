package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/sb-vm/machine"
)

// inners are the processes that sb-vm starts of itself.
var inners = map[string]func([]string) error{"confine": confineMain, "share": shareMain}

// guestShare is how the guest finds share i: on a port of its own.
func guestShare(i int) machine.Share { return machine.Share{Port: sharePort(i)} }

// boot starts the share server and QEMU, from memory if it may and can.
func boot(ctx context.Context, m *manifest.Manifest, w wires, mayRestore bool) (*vm, error) {
	q, err := newQEMU(m)
	if err != nil {
		return nil, err
	}
	var t *saved
	if mayRestore {
		if t, err = q.findSaved(ctx); err != nil {
			return nil, err
		}
	}
	v := &vm{done: make(chan error, 1)}
	if v.console, err = openConsole(m.Machine.Console); err != nil {
		return nil, err
	}
	l := &launch{qemu: q, frames: w.frames, guest: w.guest}
	if t != nil {
		defer t.Memory.Close()
		defer t.Disk.Close()
		if err := q.renewDisk(t); err != nil {
			return nil, err
		}
		v.drop = t.drop
		l.how, l.state, l.memory = restore, t.State, t.Memory
	}
	if err := l.ends.open(len(m.Shares)); err != nil {
		return nil, err
	}
	defer l.ends.closeFar()
	defer l.ends.closeShares()
	if l.shares, err = startShares(m.Shares, l.ends.near.shares); err != nil {
		return nil, err
	}
	return v, v.start(l)
}

// pair is the two ends of a socket pair.
type pair struct{ near, far *os.File }

// launch is a QEMU that is to be started.
type launch struct {
	*qemu
	how           start
	ends          endpoints
	frames, guest *os.File
	state         *os.File  // where to save to, or to restore from
	memory        *os.File  // what to restore from
	shares        *exec.Cmd // the share server, nil if there is none
}

// start starts QEMU, confined, and watches it.
func (v *vm) start(l *launch) error {
	view, err := l.files(l.how)
	if err != nil {
		return err
	}
	v.control, v.conn = l.ends.near.machine, machine.NewConn(l.ends.near.machine)
	files, show, watch, err := l.descriptors()
	if err != nil {
		return err
	}
	defer watch.far.Close()
	type result struct {
		cmd *exec.Cmd
		err error
	}
	started := make(chan result)
	ended := v.console.keep(l.ends.near.console)
	go func() {
		// QEMU ends when the thread that started it does (PDEATHSIG), so that
		// thread is kept until QEMU has ended.
		runtime.LockOSThread()
		cmd, err := startConfined(view, show, l.argv(l.how), func(cmd *exec.Cmd) {
			cmd.ExtraFiles, cmd.Stderr = files, v.console
		})
		started <- result{cmd, err}
		if err != nil {
			return
		}
		err = cmd.Wait()
		endShares(l.shares)
		ended()
		v.done <- qemuEnd(err)
	}()
	got := <-started
	if got.err != nil {
		return fmt.Errorf("start %s: %w", l.program, got.err)
	}
	v.kill = func() { got.cmd.Process.Kill() }
	if l.how == restore {
		v.fetch = func() error {
			defer l.state.Close()
			defer l.ends.near.monitor.Close() // it is not told anything again
			return migrate(l.ends.near.monitor, monitorRestore, l.state)
		}
		return v.answerOpens(watch.near, l.memory)
	}
	return nil
}

// descriptors are what QEMU inherits. One that is restored shows its opens on
// number show, and to the near end of watch; otherwise there is neither.
func (l *launch) descriptors() (files []*os.File, show int, watch pair, err error) {
	files = append([]*os.File{l.frames, l.guest, l.ends.far.machine, l.ends.far.console, nil}, l.ends.far.shares...)
	if l.how != cold {
		files[fdMonitor-3] = l.ends.far.monitor
	}
	if l.how != restore {
		return files, -1, pair{}, nil
	}
	watch.near, watch.far, err = fd.Pair("opens", fd.Stream)
	return append(files, watch.far), 3 + len(files), watch, err
}

func qemuEnd(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("the machine ended: QEMU: %s", exit.ProcessState)
	}
	return err
}
