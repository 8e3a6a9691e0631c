package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/say"
	"sb/lib/wire"
	"sb/sb-gate/journal"
	"sb/sb-gate/link"
)

// wires are the descriptors that the gate was given.
type wires struct {
	frames, dns, audit, ctl, ready, leash *os.File
}

func run(args []string) error {
	flags := say.Flags("sb-gate", "--manifest FILE --frames N --dns N [flags]",
		"Decides about every flow of a sandbox and dials out what the rules allow.\nWrites the audit log.")
	file := flags.String("manifest", "", "the sandbox's manifest: [network] and [rules] are read (`FILE`)")
	frames := flags.Int("frames", -1, "the machine's wire: a datagram socket, one Ethernet frame each (descriptor `N`)")
	dns := flags.Int("dns", -1, "sb-dns: a stream socket (descriptor `N`)")
	log := flags.Int("audit", 1, "the audit log, open for appending (descriptor `N`)")
	control := flags.Int("ctl", -1, "sb-run: a stream socket (descriptor `N`)")
	ready := flags.Int("ready", -1, "where to say that it is ready (descriptor `N`)")
	leash := flags.Int("leash", -1, "ends the gate when it ends: a pipe (descriptor `N`)")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("sb-gate takes no arguments, got %q", flags.Arg(0))
	}
	if *file == "" || *frames < 0 || *dns < 0 {
		return say.WithHint(say.Usage("sb-gate needs --manifest, --frames and --dns"), "sb-run starts it; by hand, see the EXAMPLES of sb-gate(1)")
	}
	w, err := take(*frames, *dns, *log, *control, *ready, *leash)
	if err != nil {
		return err
	}
	m, err := manifest.Load(*file)
	if err != nil {
		return err
	}
	set, err := rule.Load(rule.Source{Origin: *file, Allow: m.Rules.Allow, Deny: m.Rules.Deny})
	if err != nil {
		return err
	}
	return serve(m, set, w)
}

// take claims the descriptors and closes every other that was inherited.
func take(frames, dns, log, control, ready, leash int) (w wires, err error) {
	for _, t := range []struct {
		to       **os.File
		name     string
		n        int
		kind     fd.Kind
		optional bool
	}{
		{&w.frames, "frames", frames, fd.Dgram, false},
		{&w.dns, "dns", dns, fd.Stream, false},
		{&w.audit, "audit", log, fd.Output, false},
		{&w.ctl, "ctl", control, fd.Stream, true},
		{&w.ready, "ready", ready, fd.Output, true},
		{&w.leash, "leash", leash, fd.Pipe, true},
	} {
		if t.optional && t.n < 0 {
			continue
		}
		if *t.to, err = fd.Take(t.name, t.n, t.kind); err != nil {
			return w, err
		}
	}
	return w, fd.CloseRest()
}

// serve runs the gate until a wire, the leash or a signal ends it.
func serve(m *manifest.Manifest, set *rule.Set, w wires) error {
	g := &gate{net: m.Network, names: newNames(m.Network), flows: newFlows(), ping: &pinger{last: map[netip.Addr]time.Time{}}}
	g.policy.Store(&policy{set: set})
	var control *ctl.Conn
	if w.ctl != nil {
		var err error
		if control, err = ctl.NewConn(w.ctl); err != nil {
			return err
		}
	}
	g.log = journal.New(w.audit, func() {
		if control != nil {
			control.Send(ctl.Message{{Key: "event", Value: "rotate"}})
		}
	})
	defer g.log.Close()
	g.log.Record(audit.Line{Verdict: audit.Note, Gate: audit.Run, Name: m.Name, Reason: reason.GateStart,
		Words: []audit.Word{{Key: "version", Value: say.Version}, {Key: "manifest", Value: m.Digest[:16]}, audit.Int("rules", int64(len(m.Rules.Allow)+len(m.Rules.Deny)))}})

	wireEnd, err := link.New(w.frames, filter(m.Network), func(why reason.Code) {
		g.log.Fold(audit.Line{Verdict: audit.Deny, Gate: audit.Frame, Reason: why})
	})
	if err != nil {
		return err
	}
	defer wireEnd.Close()
	ends := make(chan error, 8)
	if err := g.start(wireEnd, w, control, ends); err != nil {
		return err
	}
	if err := fd.Ready(w.ready, say.Version); err != nil {
		return err
	}
	err = g.wait(wireEnd, w, ends)
	for _, f := range g.flows.all() {
		f.reset(reason.GateEnd)
	}
	g.log.Record(audit.Line{Verdict: audit.Note, Gate: audit.Run, Name: m.Name, Reason: reason.GateEnd})
	return err
}

// start brings up everything that judges, and last the wire.
func (g *gate) start(wireEnd *link.Endpoint, w wires, control *ctl.Conn, ends chan error) error {
	g.dns = newResolver(g, wire.NewConn(w.dns))
	if err := g.dns.greet(); err != nil {
		return fmt.Errorf("meet sb-dns: %w", err)
	}
	if err := g.openStack(wireEnd); err != nil {
		return err
	}
	if err := g.serveDNS(); err != nil {
		return err
	}
	if err := g.serveClock(); err != nil {
		return err
	}
	go func() { ends <- g.dns.read() }()
	if control != nil {
		go func() { ends <- g.control(control) }()
	}
	return g.up()
}

// wait returns when the gate is to end: without an error if it was told to.
func (g *gate) wait(wireEnd *link.Endpoint, w wires, ends chan error) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	done := make(chan struct{})
	defer close(done)
	go g.flows.sweep(done)
	select {
	case <-fd.Leash(w.leash):
		return nil
	case <-signals:
		return nil
	case <-wireEnd.Ended():
		return wireEnd.Err()
	case err := <-ends:
		return ended(err)
	}
}

// ended tells the end of a wire, which ends the gate as it should, from a fault.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
