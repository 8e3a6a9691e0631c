package main

import (
	"os"

	"sb/lib/fd"

	"golang.org/x/sys/unix"
)

// endpoints are the socket pairs between sb-vm and the hypervisor.
type endpoints struct {
	near, far struct {
		machine, console, monitor *os.File
		shares                    []*os.File
	}
}

// open makes the pairs of a machine that has so many share ports.
func (e *endpoints) open(shares int) (err error) {
	if e.near.machine, e.far.machine, err = fd.Pair("machine", fd.Stream); err != nil {
		return err
	}
	if e.near.console, e.far.console, err = fd.Pair("console", fd.Stream); err != nil {
		return err
	}
	if e.near.monitor, e.far.monitor, err = fd.Pair("monitor", fd.Stream); err != nil {
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
	for _, f := range []**os.File{&e.near.machine, &e.near.console, &e.near.monitor} {
		if *f, err = pollable(*f); err != nil {
			return err
		}
	}
	return nil
}

// closeFar closes what the hypervisor holds now.
func (e *endpoints) closeFar() {
	e.far.machine.Close()
	e.far.console.Close()
	e.far.monitor.Close()
	for i := range e.far.shares {
		e.far.shares[i].Close()
	}
}

// closeShares closes what the share server holds now.
func (e *endpoints) closeShares() {
	for _, f := range e.near.shares {
		f.Close()
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
