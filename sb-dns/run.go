package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/say"
	"sb/lib/wire"
)

// wires are the descriptors that sb-dns was given.
type wires struct {
	dns, ctl, ready, leash *os.File
}

func run(args []string) error {
	flags := say.Flags("sb-dns", "--manifest FILE --dns N [flags]",
		"Answers a sandbox's DNS questions by its rules and resolves names for sb-gate.")
	file := flags.String("manifest", "", "the sandbox's manifest: [network], [rules] and [dns] are read (`FILE`)")
	dns := flags.Int("dns", -1, "sb-gate: a stream socket (descriptor `N`)")
	control := flags.Int("ctl", -1, "sb-run: a stream socket (descriptor `N`)")
	ready := flags.Int("ready", -1, "where to say that it is ready (descriptor `N`)")
	leash := flags.Int("leash", -1, "ends sb-dns when it ends: a pipe (descriptor `N`)")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("sb-dns takes no arguments, got %q", flags.Arg(0))
	}
	if *file == "" || *dns < 0 {
		return say.WithHint(say.Usage("sb-dns needs --manifest and --dns"), "sb-run starts it; by hand, see the EXAMPLES of sb-dns(1)")
	}
	w, err := take(*dns, *control, *ready, *leash)
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
	return newServer(m, set).serve(w)
}

// take claims the descriptors and closes every other that was inherited.
func take(dns, control, ready, leash int) (w wires, err error) {
	for _, t := range []struct {
		to       **os.File
		name     string
		n        int
		kind     fd.Kind
		optional bool
	}{
		{&w.dns, "dns", dns, fd.Stream, false},
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

// close closes what is open of the descriptors.
func (w wires) close() {
	for _, f := range []*os.File{w.dns, w.ctl, w.ready, w.leash} {
		if f != nil {
			f.Close()
		}
	}
}

// serve answers until a wire, the leash or a signal ends it. It takes over the
// descriptors of w.
func (s *server) serve(w wires) error {
	defer w.close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	ends := make(chan error, 2)
	if w.ctl != nil {
		c, err := ctl.NewConn(w.ctl)
		if err != nil {
			return err
		}
		defer c.Close()
		go func() { ends <- s.control(c) }()
	}
	s.conn = wire.NewConn(w.dns)
	// The gate greets too, so readiness cannot wait for it.
	if err := fd.Ready(w.ready, say.Version); err != nil {
		return err
	}
	go func() { ends <- s.answerAll() }()
	select {
	case <-fd.Leash(w.leash):
		return nil
	case <-signals:
		return nil
	case err := <-ends:
		if ended(err) {
			return nil
		}
		return err
	}
}

// ended tells the end of a wire, which ends sb-dns as it should, from a fault.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// answerAll meets the gate and answers what comes over its wire.
func (s *server) answerAll() error {
	if err := s.conn.Greet(s.handles.list, s.handles.enter); err != nil {
		return fmt.Errorf("meet sb-gate: %w", err)
	}
	for {
		rec, err := s.conn.Next()
		if err != nil {
			return fmt.Errorf("the dns wire: %w", err)
		}
		switch rec := rec.(type) {
		case wire.Query:
			s.query(rec)
		case wire.Resolve:
			go s.resolve(rec)
		case wire.Hello: // another gate took its place
			if err := s.conn.SendTable(rec.Nonce, s.handles.list()); err != nil {
				return fmt.Errorf("the dns wire: %w", err)
			}
		default:
			return fmt.Errorf("the dns wire: sb-gate sent a %T", rec)
		}
	}
}

// control answers sb-run until its end of the wire is closed.
func (s *server) control(c *ctl.Conn) error {
	for {
		m, files, err := c.Receive()
		if err != nil {
			return err
		}
		for _, f := range files {
			f.Close()
		}
		if err := c.Answer(s.obey(m)); err != nil {
			return err
		}
	}
}

func (s *server) obey(m ctl.Message) (ctl.Message, error) {
	answer := ctl.Message{{Key: "ok", Value: m.Get("ask")}}
	switch m.Get("ask") {
	case "alive":
		return answer, nil
	case "rules":
		generation := m.Get("generation")
		if _, err := strconv.ParseUint(generation, 10, 64); err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		set, err := rule.Load(rule.Source{Origin: "rules", Allow: m.All("allow"), Deny: m.All("deny")})
		if err != nil {
			return nil, err
		}
		s.rules.Store(set)
		return append(answer, ctl.Pair{Key: "generation", Value: generation}), nil
	}
	return nil, fmt.Errorf("no such question: %q", m.Get("ask"))
}
