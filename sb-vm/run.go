package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/say"
)

func run(args []string) error {
	if len(args) > 0 {
		if inner, ok := inners[args[0]]; ok {
			return inner(args[1:])
		}
	}
	flags := say.Flags("sb-vm", "--manifest FILE --frames N --guest N [flags]",
		"Boots a sandbox's machine and ends when it does.")
	file := flags.String("manifest", "", "the sandbox's manifest: [network], [machine] and [[share]] are read (`FILE`)")
	frames := flags.Int("frames", -1, "the machine's only wire: a datagram socket, one Ethernet frame each (descriptor `N`)")
	guest := flags.Int("guest", -1, "the guest stream: a stream socket (descriptor `N`)")
	ready := flags.Int("ready", -1, "where to say that the guest is up (descriptor `N`)")
	leash := flags.Int("leash", -1, "ends the machine when it ends: a pipe (descriptor `N`)")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("sb-vm takes no arguments, got %q", flags.Arg(0))
	}
	if *file == "" || *frames < 0 || *guest < 0 {
		return say.WithHint(say.Usage("sb-vm needs --manifest, --frames and --guest"), "sb-run starts it; by hand, see the EXAMPLES of sb-vm(1)")
	}
	m, err := manifest.Load(*file)
	if err != nil {
		return err
	}
	if err := guard(m, *file); err != nil {
		return err
	}
	w, err := take(*frames, *guest, *ready, *leash)
	if err != nil {
		return err
	}
	return serve(m, w)
}

// wires are the descriptors that sb-vm was given.
type wires struct{ frames, guest, ready, leash *os.File }

func take(frames, guest, ready, leash int) (w wires, err error) {
	if w.frames, err = fd.Take("frames", frames, fd.Dgram); err != nil {
		return w, err
	}
	if w.guest, err = fd.Take("guest", guest, fd.Stream); err != nil {
		return w, err
	}
	if ready >= 0 {
		if w.ready, err = fd.Take("ready", ready, fd.Output); err != nil {
			return w, err
		}
	}
	if leash >= 0 {
		if w.leash, err = fd.Take("leash", leash, fd.Pipe); err != nil {
			return w, err
		}
	}
	return w, fd.CloseRest()
}

// serve boots the machine and waits for its end, or for a reason to end it.
func serve(m *manifest.Manifest, w wires) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	leash := fd.Leash(w.leash)
	// Whoever waits at the other end of the guest stream learns that there is
	// no machine, also where a shell holds this end open too.
	guest, err := fd.Dup(w.guest)
	if err != nil {
		return err
	}
	defer fd.Shutdown(guest)
	vm, err := boot(m, w)
	if err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() { up <- vm.configure(m) }()
	for {
		select {
		case err := <-up:
			if err != nil {
				vm.kill()
				return fmt.Errorf("bring the guest up: %w", vm.explain(err))
			}
			if err := fd.Ready(w.ready, say.Version); err != nil {
				vm.kill()
				return err
			}
			up = nil
		case <-leash:
			return vm.end()
		case <-signals:
			return vm.end()
		case err := <-vm.ended():
			if err == nil && up != nil {
				err = errors.New("the machine ended before it was up")
			}
			return vm.explain(err)
		}
	}
}
