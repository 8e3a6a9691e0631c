//go:build linux

package main

import (
	"fmt"
	"os"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

// mountShare mounts a share and waits until it works.
func (g *guest) mountShare(s machine.Share) error {
	if err := os.MkdirAll(s.Target, 0o755); err != nil {
		return err
	}
	if s.Tag != "" {
		return mountTag(s)
	}
	return g.startRelay(s)
}

// mountTag mounts what the hypervisor itself serves.
func mountTag(s machine.Share) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if s.ReadOnly {
		flags |= unix.MS_RDONLY // the host does not rely on it
	}
	if err := unix.Mount(s.Tag, s.Target, "virtiofs", flags, ""); err != nil {
		return fmt.Errorf("mount the virtio-fs share %s: %w", s.Tag, err)
	}
	return nil
}

// startRelay starts the process that relays a share and waits until it works.
func (g *guest) startRelay(s machine.Share) error {
	port, err := g.openPort(s.Port)
	if err != nil {
		return err
	}
	defer port.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	args := []string{"sb-guest", "share", "--port=3", "--ready=4"}
	if s.ReadOnly {
		args = append(args, "--read-only")
	}
	_, err = g.start("/proc/self/exe", append(args, s.Target), &os.ProcAttr{Dir: "/", Files: []*os.File{nil, os.Stdout, os.Stderr, port, w}})
	w.Close()
	if err != nil {
		return err
	}
	if err := fd.WaitReady(r, say.Version); err != nil {
		return fmt.Errorf("its relay did not start: %w", err)
	}
	return nil
}
