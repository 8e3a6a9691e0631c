//go:build linux

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/sb-vm/guest/fuse"
	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

// mountShare mounts a share and waits until it works; of a copy, the guest's own
// disk over it, and over its private directories too.
func (g *guest) mountShare(number int, s machine.Share, kept int64) error {
	if err := os.MkdirAll(s.Target, 0o755); err != nil {
		return err
	}
	if !s.Copy && len(s.Private) == 0 {
		return g.mountServed(s)
	}
	if !s.Copy {
		if err := g.mountServed(s); err != nil {
			return err
		}
	}
	if s.Copy {
		return withDisk(writableDisk, 0, func(disk string) error { return g.mountCopy(s, fmt.Sprintf("%s/copy%d", disk, number)) })
	}
	device := writableDisk
	if kept > 0 {
		device = keptDisk
	}
	return withDisk(device, kept, func(disk string) error {
		for _, dir := range s.Private {
			// By its place: what is kept is found again, whatever else is private.
			own := fmt.Sprintf("%s/private/%x", disk, sha256.Sum256([]byte(s.Target+"/"+dir)))
			if err := mountPrivate(s, dir, own); err != nil {
				return fmt.Errorf("the private directory %s: %w", dir, err)
			}
		}
		return nil
	})
}

// mountServed mounts what is served.
func (g *guest) mountServed(s machine.Share) error {
	if s.Tag != "" {
		return mountTag(s)
	}
	r, err := g.relay(s.Port)
	if err != nil {
		return err
	}
	return r.mount(s)
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

// relay is a process that relays a share, once it is told where.
type relay struct {
	order *os.File // what it is told
	ready *os.File // where it says that it does
}

// spares is how many relays are started before a machine is saved, which is what
// takes longest of a share. More are started when there are more shares.
const spares = 2

// startSpares starts relays for the first ports.
func (g *guest) startSpares() (err error) {
	g.spares = map[string]*relay{}
	for i := range spares {
		port := fmt.Sprint(machine.SharePort, i)
		if g.spares[port], err = g.startRelay(port); err != nil {
			return err
		}
	}
	return nil
}

// endSpares ends those that there is no share for.
func (g *guest) endSpares() {
	for _, r := range g.spares {
		r.order.Close()
		r.ready.Close()
	}
	g.spares = nil
}

// relay returns the relay of a port.
func (g *guest) relay(port string) (*relay, error) {
	if r, ok := g.spares[port]; ok {
		delete(g.spares, port)
		return r, nil
	}
	return g.startRelay(port)
}

func (g *guest) startRelay(name string) (*relay, error) {
	port, err := g.openPort(name)
	if err != nil {
		return nil, err
	}
	defer port.Close()
	ready, readyFar, err1 := os.Pipe()
	orderFar, order, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	defer readyFar.Close()
	defer orderFar.Close()
	_, err = g.start("/proc/self/exe", []string{"sb-guest", "share", "--port=3", "--ready=4", "--order=5"},
		&os.ProcAttr{Dir: "/", Files: []*os.File{nil, os.Stdout, os.Stderr, port, readyFar, orderFar}})
	if err != nil {
		order.Close()
		ready.Close()
		return nil, err
	}
	return &relay{order, ready}, nil
}

// mount has the relay mount the share and waits until that works.
func (r *relay) mount(s machine.Share) error {
	defer r.ready.Close()
	_, err := r.order.Write(fuse.Order(s.Target, s.ReadOnly))
	if err := errors.Join(err, r.order.Close()); err != nil {
		return fmt.Errorf("its relay has ended: %w", err)
	}
	if err := fd.WaitReady(r.ready, say.Version); err != nil {
		return fmt.Errorf("its relay did not start: %w", err)
	}
	return nil
}
