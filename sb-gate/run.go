package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
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
	frames, dns, audit, ctl, broker, ready, leash *os.File
}

func run(args []string) error {
	flags := say.Flags("sb-gate", "--manifest FILE --frames N --dns N [flags]",
		"Decides about every flow of a sandbox and dials out what the rules allow.\nWrites the audit log.")
	file := flags.String("manifest", "", "the sandbox's manifest: [network] and [rules] are read (`FILE`)")
	frames := flags.Int("frames", -1, "the machine's wire: a datagram socket, one Ethernet frame each (descriptor `N`)")
	dns := flags.Int("dns", -1, "sb-dns: a stream socket (descriptor `N`)")
	log := flags.Int("audit", 1, "the audit log, open for appending (descriptor `N`)")
	control := flags.Int("ctl", -1, "sb-run: a stream socket (descriptor `N`)")
	broker := flags.Int("broker", -1, "sb-broker: a datagram socket; without it names with a credential are refused (descriptor `N`)")
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
	w, err := take(*frames, *dns, *log, *control, *broker, *ready, *leash)
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
	if err := confineSelf(); err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryLimit)
	return serve(m, set, w)
}

// take claims the descriptors and closes every other that was inherited.
func take(frames, dns, log, control, broker, ready, leash int) (w wires, err error) {
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
		{&w.broker, "broker", broker, fd.Dgram, true},
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

// serve runs the gate until a wire, the leash or a signal ends it. It takes over
// the descriptors of w.
func serve(m *manifest.Manifest, set *rule.Set, w wires) (err error) {
	defer w.close()
	// From the first line of the log on, the end has its line too.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	g := &gate{ctx: ctx, net: m.Network, names: newNames(m.Network), flows: newFlows(), ping: &pinger{last: map[netip.Addr]time.Time{}}}
	g.policy.Store(&policy{set: set})
	if m.Network.ECH == manifest.ECHAuto {
		g.ech = newECHTable()
	}
	if err := g.openBroker(m.Credentials, w.broker); err != nil {
		cancel()
		return err
	}
	var control *ctl.Conn
	if w.ctl != nil {
		if control, err = ctl.NewConn(w.ctl); err != nil {
			cancel()
			return err
		}
		defer control.Close()
	}
	g.log = journal.New(w.audit, func() {
		if control != nil {
			control.Send(ctl.Message{{Key: "event", Value: "rotate"}})
		}
	})
	words := []audit.Word{{Key: "version", Value: say.Version}, {Key: "manifest", Value: m.Digest[:16]}, audit.Int("rules", int64(len(m.Rules.Allow)+len(m.Rules.Deny)))}
	g.log.Record(audit.Line{Verdict: audit.Note, Gate: audit.Run, Name: m.Name, Reason: reason.GateStart, Words: words})
	err = g.run(w, control, signals, m)
	g.end(w, cancel)
	g.log.Unfold()
	g.log.Record(audit.Line{Verdict: audit.Note, Gate: audit.Run, Name: m.Name, Reason: reason.GateEnd})
	if lerr := g.log.Close(); err == nil && lerr != nil {
		err = fmt.Errorf("write the audit log: %w", lerr)
	}
	return err
}

// run starts everything and waits until something ends it: without an error if
// the gate was told to end. Nothing is taken from the guest before the gate has
// proven that it refuses.
func (g *gate) run(w wires, control *ctl.Conn, signals <-chan os.Signal, m *manifest.Manifest) error {
	done := make(chan struct{})
	defer close(done)
	told := toldToEnd(w.leash, signals, done)
	met := make(chan error, 1)
	g.dns = newResolver(g, wire.NewConn(w.dns))
	go func() { met <- g.meet(m) }()
	select {
	case <-told:
		return nil
	case err := <-met:
		if err != nil {
			return err
		}
	}
	if err := g.openWire(w.frames); err != nil {
		return err
	}
	ends := make(chan error, 3)
	go func() { ends <- g.dns.read() }()
	if g.broker.wire != nil {
		go func() { ends <- g.broker.read() }()
	}
	if control != nil {
		go func() { ends <- g.control(control) }()
	}
	go g.flows.sweep(done)
	go g.flows.relieve(done)
	if err := fd.Ready(w.ready, say.Version); err != nil {
		return err
	}
	select {
	case <-told:
		return nil
	case <-g.wire.Ended():
		return g.wire.Err()
	case err := <-ends:
		if ended(err) {
			return nil
		}
		return err
	}
}

// meet learns what sb-dns knows, and proves that the two of them refuse.
func (g *gate) meet(m *manifest.Manifest) error {
	if err := g.dns.greet(); err != nil {
		return fmt.Errorf("meet sb-dns: %w", err)
	}
	return g.prove(m)
}

// ended tells the end of a wire, which ends the gate as it should, from a fault.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// toldToEnd is closed when the leash ends or a signal comes.
func toldToEnd(leash *os.File, signals <-chan os.Signal, done <-chan struct{}) <-chan struct{} {
	told := make(chan struct{})
	end := fd.Leash(leash)
	go func() {
		select {
		case <-end:
			close(told)
		case <-signals:
			close(told)
		case <-done:
		}
	}()
	return told
}

// openWire brings up everything that judges, and last the wire.
func (g *gate) openWire(frames *os.File) (err error) {
	g.wire, err = link.New(frames, filter(g.net), func(why reason.Code) {
		g.log.Fold(audit.Line{Verdict: audit.Deny, Gate: audit.Frame, Reason: why})
	})
	if err != nil {
		return err
	}
	if err := g.openStack(g.wire); err != nil {
		return err
	}
	if err := g.serveDNS(); err != nil {
		return err
	}
	if err := g.serveClock(); err != nil {
		return err
	}
	return g.up()
}

// end lets nothing new begin, resets everything that is open and waits until
// its last lines are in the log, as long as endTime allows.
func (g *gate) end(w wires, cancel func()) {
	g.flows.close()
	cancel()
	w.dns.Close()
	for _, f := range g.flows.all() {
		f.reset(reason.GateEnd)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		g.closeStack()
	}()
	late := time.After(endTime)
	select {
	case <-g.flows.idle:
	case <-late:
	}
	select {
	case <-closed:
	case <-late:
	}
	if g.broker.wire != nil {
		g.broker.wire.Close()
	}
}

// closeStack resets what the guest has open and closes the wire.
func (g *gate) closeStack() {
	for _, s := range g.served {
		s.Close()
	}
	if g.stack != nil {
		g.stack.Close()
	}
	if g.wire != nil {
		g.wire.Close()
		if g.wire.IsAttached() {
			// The stack would wait for it with a lock held that the last frame may need.
			g.wire.Wait()
		}
	}
	if g.stack != nil {
		g.stack.Wait()
	}
}

// close closes what is open of the descriptors.
func (w wires) close() {
	for _, f := range []*os.File{w.frames, w.dns, w.audit, w.ctl, w.broker, w.ready, w.leash} {
		if f != nil {
			f.Close()
		}
	}
}
