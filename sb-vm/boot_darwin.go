package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-vm/machine"

	"github.com/Code-Hex/vz/v3"
)

// inners are the processes that sb-vm starts of itself: none, the framework has
// its own for the machine and the shares, in a sandbox of its own.
var inners = map[string]func([]string) error{}

// guestShare is how the guest finds share i: the framework serves it under a tag.
func guestShare(i int) machine.Share { return machine.Share{Tag: sharePort(i)} }

// saveMachine is sb-vm --save.
func saveMachine(context.Context, *manifest.Manifest) error {
	return errors.New("save a machine: on macOS each one boots")
}

// boot starts the machine on Virtualization.framework. None is restored there.
func boot(_ context.Context, m *manifest.Manifest, w wires, _ bool) (*vm, error) {
	if runtime.GOARCH != "arm64" {
		return nil, errors.New("boot a machine: on macOS only Apple's own processors can run one")
	}
	if err := frameworkLacks(m, keep.Ours()); err != nil {
		return nil, err
	}
	p, err := findParts(m.Machine)
	if err != nil {
		return nil, err
	}
	v := &vm{done: make(chan error, 1)}
	if v.console, err = openConsole(m.Machine.Console); err != nil {
		return nil, err
	}
	h := &held{parts: p, wires: w}
	if err := h.ends.open(0); err != nil {
		return nil, err
	}
	v.control, v.conn = h.ends.near.machine, machine.NewConn(h.ends.near.machine)
	config, err := configuration(m, h)
	if err != nil {
		return nil, fmt.Errorf("configure the machine: %w", explainFramework(err))
	}
	vm, err := vz.NewVirtualMachine(config)
	if err != nil {
		return nil, fmt.Errorf("make the machine: %w", explainFramework(err))
	}
	return v, v.start(vm, h)
}

// held is what must stay open for as long as the machine lives. The framework
// is given bare descriptors: a file that was collected would close them.
type held struct {
	*parts
	wires
	ends endpoints
}

// start starts the machine and watches it. The package keeps a dispatch queue
// for each machine and does everything on it, so no thread matters here.
func (v *vm) start(vm *vz.VirtualMachine, h *held) error {
	states := vm.StateChangedNotify()
	if err := vm.Start(); err != nil {
		return fmt.Errorf("start the machine: %w", explainFramework(err))
	}
	v.kill = func() {
		if err := vm.Stop(); err != nil {
			v.finish(fmt.Errorf("stop the machine: %w", err))
		}
	}
	ended := v.console.keep(h.ends.near.console)
	go func() {
		err := awaitEnd(states)
		h.ends.closeFar()
		ended()
		h.base.Close()
		runtime.KeepAlive(vm)
		runtime.KeepAlive(h)
		v.finish(err)
	}()
	return nil
}

// finish says that the machine has ended, once.
func (v *vm) finish(err error) {
	select {
	case v.done <- err:
	default:
	}
}

// awaitEnd waits for the end of a machine: nil if it was powered off or stopped.
func awaitEnd(states <-chan vz.VirtualMachineState) error {
	for s := range states {
		switch s {
		case vz.VirtualMachineStateStopped:
			return nil
		case vz.VirtualMachineStateError:
			return errors.New("the machine ended: an error inside Virtualization.framework")
		}
	}
	return errors.New("the machine ended: the framework says no more of it")
}

// explainFramework adds what to do about the usual causes.
func explainFramework(err error) error {
	var e *vz.NSError
	switch {
	case errors.Is(err, vz.ErrUnsupportedOSVersion):
		return say.WithHint(err, "it needs macOS 13 or newer")
	case errors.As(err, &e) && strings.Contains(e.Error(), "entitlement"):
		self, _ := os.Executable()
		return say.WithHint(err, "sign it: codesign --force --sign - --entitlements vm.entitlements %s", self)
	}
	return err
}
