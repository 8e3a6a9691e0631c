//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"sb/lib/say"
	"sb/lib/session"
	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

// boot brings the machine up and serves it until it is told to power off. It
// returns only to say what failed.
func boot() error {
	if err := mountKernel(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	openConsole()
	if err := enterRoot(); err != nil {
		return err
	}
	ports, err := findPorts()
	if err != nil {
		return err
	}
	g := &guest{processes: newProcesses(), ports: ports}
	control, err := g.openPort(machine.Port)
	if err != nil {
		return err
	}
	go g.reap()
	return g.serve(machine.NewConn(control))
}

// guest is this machine, once it has booted.
type guest struct {
	*processes
	settled bool
	ports   map[string]string // devices of the virtio ports by their names
	spares  map[string]*relay // relays that wait for a share, by their ports
}

// serve does what sb-vm asks.
func (g *guest) serve(c *machine.Conn) error {
	for {
		var r machine.Request
		if err := c.Receive(&r); err != nil {
			return fmt.Errorf("read the machine's port: %w", err)
		}
		err := g.do(r)
		a := machine.Answer{Done: err == nil}
		if err != nil {
			a.Error = err.Error()
		}
		if err := c.Send(a); err != nil {
			return fmt.Errorf("write to the machine's port: %w", err)
		}
		if r.Do == "poweroff" && err == nil {
			unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		}
	}
}

func (g *guest) do(r machine.Request) error {
	if r.Time != 0 {
		if err := setClock(time.Unix(0, r.Time)); err != nil {
			return err
		}
	}
	if len(r.Entropy) > 0 {
		if err := addEntropy(r.Entropy); err != nil {
			return err
		}
	}
	switch r.Do {
	case "settle", "configure":
		if r.Configure == nil {
			return errors.New("nothing to configure")
		}
		if r.Do == "settle" {
			return errors.Join(g.settle(*r.Configure), awaitCarrier(), g.startSpares())
		}
		return g.configure(*r.Configure)
	case "time":
		return nil
	case "sync", "poweroff":
		unix.Sync()
		return nil
	}
	return fmt.Errorf("cannot do %q", r.Do)
}

// settle does what can be done before it is known whose the machine is. After it
// the machine may be saved, and be restored as many sandboxes' at once.
func (g *guest) settle(c machine.Configure) error {
	if g.settled {
		return nil
	}
	if err := placeNames(); err != nil {
		return err
	}
	if err := raiseNetwork(c.MTU); err != nil {
		return err
	}
	if err := growDisk(disk, c.DiskSize); err != nil {
		return err
	}
	unix.Sync()
	g.settled = true
	return nil
}

func (g *guest) configure(c machine.Configure) error {
	if err := g.settle(c); err != nil {
		return err
	}
	if err := setNames(c); err != nil {
		return err
	}
	if err := setNetwork(c); err != nil {
		return err
	}
	for i, s := range c.Shares {
		if err := g.mountShare(i, s, c.KeptSize); err != nil {
			return fmt.Errorf("mount the share at %s: %w", s.Target, err)
		}
	}
	// Only now: a command finds the machine as it will stay.
	stream, err := g.openPort(machine.GuestPort)
	if err != nil {
		return err
	}
	go g.serveCommands(stream)
	time.AfterFunc(time.Second, g.endSpares) // not in the way of the first command
	return nil
}

// serveCommands runs what comes over the guest stream.
func (g *guest) serveCommands(stream io.ReadWriter) {
	say.Warn("the guest stream ended: %v", session.Serve(stream, g.run))
}

// openPort opens the virtio port of that name.
func (g *guest) openPort(name string) (*os.File, error) {
	if device, ok := g.ports[name]; ok {
		return openDevice(device)
	}
	return nil, fmt.Errorf("find the virtio port %s: not there", name)
}

// findPorts waits until the guest stream's port is there, the last one of them,
// and returns the devices of all by their names.
func findPorts() (map[string]string, error) {
	const dir = "/sys/class/virtio-ports"
	for deadline := time.Now().Add(10 * time.Second); ; {
		ports := map[string]string{}
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			b, _ := os.ReadFile(dir + "/" + e.Name() + "/name")
			ports[strings.TrimSpace(string(b))] = "/dev/" + e.Name()
		}
		if ports[machine.GuestPort] != "" && ports[machine.Port] != "" {
			return ports, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("find the virtio port %s: not there (%v)", machine.GuestPort, err)
		}
		// The kernel names ports after the host's messages; nothing can be
		// waited on before.
		time.Sleep(time.Millisecond)
	}
}

// openDevice opens a device so that reads wait in the runtime's poller.
func openDevice(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
