package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/say"
	"sb/lib/wire"
)

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
	m, err := manifest.Load(*file)
	if err != nil {
		return err
	}
	set, err := rule.Load(rule.Source{Origin: *file, Allow: m.Rules.Allow, Deny: m.Rules.Deny})
	if err != nil {
		return err
	}
	return serve(newServer(m, set), *dns, *control, *ready, *leash)
}

// serve takes the descriptors and answers until a wire, the leash or a signal
// ends it.
func serve(s *server, dns, control, ready, leash int) error {
	wireEnd, err := fd.Take("dns", dns, fd.Stream)
	if err != nil {
		return err
	}
	var ctlEnd, readyEnd, leashEnd *os.File
	for _, t := range []struct {
		to   **os.File
		name string
		n    int
		kind fd.Kind
	}{{&ctlEnd, "ctl", control, fd.Stream}, {&readyEnd, "ready", ready, fd.Output}, {&leashEnd, "leash", leash, fd.Pipe}} {
		if t.n >= 0 {
			if *t.to, err = fd.Take(t.name, t.n, t.kind); err != nil {
				return err
			}
		}
	}
	if err := fd.CloseRest(); err != nil {
		return err
	}
	s.conn = wire.NewConn(wireEnd)
	ends := make(chan error, 4)
	if ctlEnd != nil {
		c, err := ctl.NewConn(ctlEnd)
		if err != nil {
			return err
		}
		go func() { ends <- s.control(c) }()
	}
	// The gate greets too, so readiness cannot wait for it.
	if err := fd.Ready(readyEnd, say.Version); err != nil {
		return err
	}
	go func() { ends <- s.answerAll() }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	select {
	case <-fd.Leash(leashEnd):
		return nil
	case <-signals:
		return nil
	case err := <-ends:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
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
				return err
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
		answer := ctl.Message{{Key: "ok", Value: m.Get("ask")}}
		switch m.Get("ask") {
		case "alive":
		case "rules":
			set, err := rule.Load(rule.Source{Origin: "rules", Allow: m.All("allow"), Deny: m.All("deny")})
			if err != nil {
				answer = ctl.Message{{Key: "error", Value: err.Error()}}
				break
			}
			s.rules.Store(set)
			answer = append(answer, ctl.Pair{Key: "generation", Value: m.Get("generation")})
		default:
			answer = ctl.Message{{Key: "error", Value: fmt.Sprintf("no such question: %q", m.Get("ask"))}}
		}
		if err := c.Send(answer); err != nil {
			return err
		}
	}
}
