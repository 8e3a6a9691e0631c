//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
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
	control, err := openPort(machine.Port)
	if err != nil {
		return err
	}
	p := newProcesses()
	go p.reap()
	return serveMachine(machine.NewConn(control), p)
}

// serveMachine does what sb-vm asks.
func serveMachine(c *machine.Conn, p *processes) error {
	for {
		var r machine.Request
		if err := c.Receive(&r); err != nil {
			return fmt.Errorf("read the machine's port: %w", err)
		}
		err := do(r, p)
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

func do(r machine.Request, p *processes) error {
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
	case "configure":
		if r.Configure == nil {
			return errors.New("nothing to configure")
		}
		return configure(*r.Configure, p)
	case "time":
		return nil
	case "settle":
		return settle()
	case "sync", "poweroff":
		unix.Sync()
		return nil
	}
	return fmt.Errorf("cannot do %q", r.Do)
}

// settle leaves the machine as it is to be saved.
func settle() error {
	unix.Sync()
	return nil
}

func configure(c machine.Configure, p *processes) error {
	if err := setNames(c); err != nil {
		return err
	}
	if err := setNetwork(c); err != nil {
		return err
	}
	if err := growDisk(c.DiskSize); err != nil {
		return err
	}
	for _, s := range c.Shares {
		if err := mountShare(s, p); err != nil {
			return fmt.Errorf("mount the share at %s: %w", s.Target, err)
		}
	}
	// Only now: a command finds the machine as it will stay.
	stream, err := openPort(machine.GuestPort)
	if err != nil {
		return err
	}
	go serveCommands(stream, p)
	return nil
}

// serveCommands runs what comes over the guest stream.
func serveCommands(stream io.ReadWriter, p *processes) {
	say.Warn("the guest stream ended: %v", session.Serve(stream, p.run))
}

// openPort opens the virtio port of that name.
func openPort(name string) (*os.File, error) {
	const dir = "/sys/class/virtio-ports"
	for deadline := time.Now().Add(10 * time.Second); ; {
		ports, err := os.ReadDir(dir)
		for _, port := range ports {
			b, _ := os.ReadFile(dir + "/" + port.Name() + "/name")
			if string(b) == name+"\n" {
				return openDevice("/dev/" + port.Name())
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("find the virtio port %s: not there (%v)", name, err)
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
