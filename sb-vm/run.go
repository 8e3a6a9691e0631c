package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-vm/machine"
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
	save := flags.Bool("save", false, "save the machine for the sandboxes of its kind, if that is not done yet, and end")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("sb-vm takes no arguments, got %q", flags.Arg(0))
	}
	if *file == "" || !*save && (*frames < 0 || *guest < 0) {
		return say.WithHint(say.Usage("sb-vm needs --manifest, --frames and --guest"), "sb-run starts it; by hand, see the EXAMPLES of sb-vm(1)")
	}
	m, err := manifest.Load(*file)
	if err != nil {
		return err
	}
	if *save {
		if err := fd.CloseRest(); err != nil {
			return err
		}
		return saveMachine(untilAsked(nil), m)
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

// serve runs the machine to its end, or until there is a reason to end it.
func serve(m *manifest.Manifest, w wires) error {
	ctx := untilAsked(w.leash)
	// Whoever waits at the other end of the guest stream learns that there is
	// no machine, also where a shell holds this end open too.
	guest, err := fd.Dup(w.guest)
	if err != nil {
		return err
	}
	defer fd.Shutdown(guest)
	var bad func() // a saved machine that could not be restored
	for mayRestore := !m.Machine.Cold && m.Machine.Kept == ""; ; mayRestore = false {
		vm, err := boot(ctx, m, w, mayRestore)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		vm.bad = bad
		err = vm.serve(ctx, m, w)
		// What a guest says cannot be done could not in one that has booted.
		if !errors.Is(err, errNotUp) || errors.Is(err, machine.ErrSays) || vm.drop == nil {
			return err
		}
		bad = vm.drop(err)
	}
}

// untilAsked is a context that ends with the leash or a signal to end.
func untilAsked(leash *os.File) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	ended := fd.Leash(leash) // of none: never
	go func() {
		select {
		case <-ended:
		case <-signals:
		}
		cancel(errors.New("it was told to end"))
	}()
	return ctx
}

// errNotUp is among the causes of the end of a machine that did not come up.
var errNotUp = errors.New("bring the guest up")

// serve makes the machine this sandbox's, and waits for its end.
func (v *vm) serve(ctx context.Context, m *manifest.Manifest, w wires) error {
	up := make(chan error, 1)
	go func() { up <- v.configure(m) }()
	room, again := newRoom(m), time.NewTicker(roomTime)
	defer again.Stop()
	defer room.look() // what it held is written at its end
	for {
		select {
		case <-again.C:
			room.look()
		case err := <-up:
			if err != nil {
				v.kill()
				<-v.done
				return fmt.Errorf("%w: %w", errNotUp, v.explain(err))
			}
			if err := v.isUp(w); err != nil {
				v.kill()
				return err
			}
			up = nil
		case <-ctx.Done():
			return v.end()
		case err := <-v.ended():
			if up != nil {
				err = fmt.Errorf("%w: %w", errNotUp, cmp.Or(err, errors.New("the machine ended")))
			}
			return v.explain(err)
		}
	}
}

// isUp says so. The wires are the hypervisor's now. What the start took is given back
// to the host: who is idle from then on collects nothing by itself.
func (v *vm) isUp(w wires) error {
	if v.seal != nil {
		v.seal()
	}
	if v.bad != nil {
		v.bad()
	}
	w.frames.Close()
	w.guest.Close()
	err := fd.Ready(w.ready, say.Version)
	go debug.FreeOSMemory()
	return err
}
