package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/handover"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-broker/authority"
)

// wires are the descriptors that the broker was given.
type wires struct {
	broker, secrets, caOut, ctl, ready, leash *os.File
}

func run(args []string) error {
	flags := say.Flags("sb-broker", "--manifest FILE --broker N --secrets N [flags]",
		"Puts credentials into the requests that a sandbox makes to the names they are\nbound to. The sandbox itself holds placeholders.")
	file := flags.String("manifest", "", "the sandbox's manifest: [[credential]] is read (`FILE`)")
	broker := flags.Int("broker", -1, "sb-gate: a datagram socket (descriptor `N`)")
	secrets := flags.Int("secrets", -1, "the keeper: a stream socket (descriptor `N`)")
	caOut := flags.Int("ca-out", -1, "where to write the certificate that the guest must trust (descriptor `N`)")
	control := flags.Int("ctl", -1, "sb-run: a stream socket (descriptor `N`)")
	ready := flags.Int("ready", -1, "where to say that it is ready (descriptor `N`)")
	leash := flags.Int("leash", -1, "ends the broker when it ends: a pipe (descriptor `N`)")
	roots := flags.StringArray("roots", nil, "take these authorities for servers besides the system's (PEM `FILE`)")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("sb-broker takes no arguments, got %q", flags.Arg(0))
	}
	if *file == "" || *broker < 0 || *secrets < 0 {
		return say.WithHint(say.Usage("sb-broker needs --manifest, --broker and --secrets"), "sb-run starts it; by hand, see the EXAMPLES of sb-broker(1)")
	}
	w, err := take(map[string]int{"broker": *broker, "secrets": *secrets, "ca-out": *caOut, "ctl": *control, "ready": *ready, "leash": *leash})
	if err != nil {
		return err
	}
	m, err := manifest.Load(*file)
	if err != nil {
		return err
	}
	pool, err := authority.Roots(*roots)
	if err != nil {
		return err
	}
	b, err := newBroker(m.Credentials, pool)
	if err != nil {
		return fmt.Errorf("%s: %w", *file, err)
	}
	debug.SetGCPercent(25) // many connections hold little each
	debug.SetMemoryLimit(memoryLimit)
	log.SetOutput(io.Discard) // net/http logs there what servers say, which may be a secret
	if err := confineSelf(); err != nil {
		return err
	}
	return b.serve(w)
}

// take claims the descriptors and closes every other that was inherited.
func take(given map[string]int) (w wires, err error) {
	for _, t := range []struct {
		to       **os.File
		name     string
		kind     fd.Kind
		optional bool
	}{
		{&w.broker, "broker", fd.Dgram, false},
		{&w.secrets, "secrets", fd.Stream, false},
		{&w.caOut, "ca-out", fd.Output, true},
		{&w.ctl, "ctl", fd.Stream, true},
		{&w.ready, "ready", fd.Output, true},
		{&w.leash, "leash", fd.Pipe, true},
	} {
		if t.optional && given[t.name] < 0 {
			continue
		}
		if *t.to, err = fd.Take(t.name, given[t.name], t.kind); err != nil {
			return w, err
		}
	}
	return w, fd.CloseRest()
}

// serve takes connections until a wire, the leash or a signal ends the broker. It
// takes over the descriptors of w.
func (b *broker) serve(w wires) (err error) {
	defer func() {
		for _, f := range []*os.File{w.secrets, w.caOut, w.ctl, w.ready, w.leash} {
			if f != nil {
				f.Close()
			}
		}
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	if b.wire, err = handover.New(w.broker); err != nil {
		return err
	}
	defer b.wire.Close()
	b.keeper = newKeeper(w.secrets)
	if err := b.publish(w.caOut); err != nil {
		return err
	}
	ends := make(chan error, 2)
	if w.ctl != nil {
		c, err := ctl.NewConn(w.ctl)
		if err != nil {
			return err
		}
		defer c.Close()
		go func() { ends <- c.SayAlive() }()
	}
	if err := fd.Ready(w.ready, say.Version); err != nil {
		return err
	}
	done := make(chan struct{})
	defer close(done)
	go b.flows.relieve(done)
	go func() { ends <- b.take() }()
	select {
	case <-fd.Leash(w.leash):
		return nil
	case <-signals:
		return nil
	case err := <-ends:
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		return err
	}
}

// publish makes the authority and writes its certificate, without the key.
func (b *broker) publish(out *os.File) (err error) {
	names := []string{}
	for n := range b.sites {
		names = append(names, n)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return say.WithHint(errors.New("the manifest binds no credential"), "a sandbox without [[credential]] needs no sb-broker")
	}
	if b.ca, err = authority.New(names); err != nil || out == nil {
		return err
	}
	if _, err := out.Write(b.ca.PEM()); err != nil {
		return fmt.Errorf("write the certificate of the authority: %w", err)
	}
	return out.Close()
}
