package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/reason"
	"sb/lib/say"
)

// sandbox is a run: its directory, its wires and its processes.
//
//	       frames            dns
//	sb-vm ──────── sb-gate ─────── sb-dns
//	  │ guest        │ ctl           │ ctl
//	  └──────────── sb-run ──────────┘
//
// sb-run keeps both ends of frames and dns, so that a part which died can be
// started again on the same wire.
type sandbox struct {
	dir     *runDir
	tools   tools
	frames  pair2
	dnsWire pair2
	leash   pair2 // the far end is every child's; closing the near one ends them all

	gate, dns *part
	rotating  sync.Mutex
	vm        *child
	up        chan struct{} // closed when the machine is ready
	guest     *os.File      // the near end of the guest stream
}

// pair2 is the two ends of a wire.
type pair2 struct{ near, far *os.File }

func newPair(name string, kind fd.Kind) (p pair2, err error) {
	p.near, p.far, err = fd.Pair(name, kind)
	return p, err
}

func (p pair2) close() {
	if p.near != nil {
		p.near.Close()
	}
	if p.far != nil {
		p.far.Close()
	}
}

// startSandbox starts the three processes. Nothing starts behind a gate that is
// not ready; the machine boots while sb-run goes on.
func startSandbox(d *runDir, t tools, e *ending) (*sandbox, error) {
	s := &sandbox{dir: d, tools: t, up: make(chan struct{})}
	if err := s.start(e); err != nil {
		s.end(e.hurry)
		return nil, err
	}
	return s, nil
}

func (s *sandbox) start(e *ending) (err error) {
	if s.frames, err = newPair("frames", fd.Dgram); err != nil {
		return err
	}
	if s.dnsWire, err = newPair("dns", fd.Stream); err != nil {
		return err
	}
	if s.leash, err = newPair("leash", fd.Stream); err != nil {
		return err
	}
	if err := s.startParts(e); err != nil {
		return err
	}
	return s.startMachine()
}

// startParts starts the resolver and the gate and waits until both are ready.
func (s *sandbox) startParts(e *ending) error {
	dnsReady, gateReady := make(chan error, 1), make(chan error, 1)
	s.dns = &part{name: "sb-dns", start: s.startDNS}
	if err := s.dns.begin(dnsReady); err != nil {
		return err
	}
	s.gate = &part{name: "sb-gate", start: s.startGate, event: func(m ctl.Message) {
		if m.Get("event") == "rotate" {
			go s.rotate()
		}
	}}
	if err := s.gate.begin(gateReady); err != nil {
		return err
	}
	var dnsDied <-chan struct{} // the gate waits for it, and would do so in vain
	for dnsReady != nil || gateReady != nil {
		var err error
		select {
		case err = <-dnsReady:
			dnsReady, dnsDied = nil, s.dns.child.done
		case err = <-gateReady:
			gateReady = nil
		case <-dnsDied:
			err = s.dns.child.failed(s.dns.child.end())
		case <-e.ctx.Done():
			err = context.Cause(e.ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sandbox) startMachine() error {
	guest, err := newPair("guest", fd.Stream)
	if err != nil {
		return err
	}
	defer guest.far.Close()
	s.guest = guest.near
	s.vm, err = s.tools.startChild("sb-vm", s.dir.file("sandbox.toml"), s.leash.far, wire{"frames", s.frames.far}, wire{"guest", guest.far})
	return err
}

func (s *sandbox) startDNS() (*child, *ctl.Conn, error) {
	return s.startPart("sb-dns", wire{"dns", s.dnsWire.far})
}

func (s *sandbox) startGate() (*child, *ctl.Conn, error) {
	log, err := s.dir.openAudit()
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	return s.startPart("sb-gate", wire{"frames", s.frames.near}, wire{"dns", s.dnsWire.near}, wire{"audit", log})
}

// startPart starts a tool that can be started again, with a ctl wire.
func (s *sandbox) startPart(name string, wires ...wire) (*child, *ctl.Conn, error) {
	if err := s.dir.checkManifest(); err != nil {
		return nil, nil, err
	}
	p, err := newPair("ctl", fd.Stream)
	if err != nil {
		return nil, nil, err
	}
	defer p.far.Close()
	conn, err := ctl.NewConn(p.near)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.tools.startChild(name, s.dir.file("sandbox.toml"), s.leash.far, append(wires, wire{"ctl", p.far})...)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return c, conn, nil
}

// supervise keeps the gate and the resolver alive, and ends the run with the
// machine.
func (s *sandbox) supervise(e *ending) {
	for _, p := range []*part{s.gate, s.dns} {
		p.watched.Go(func() {
			if err := p.watch(e, s.noteDeath); err != nil {
				e.end(say.WithHint(fmt.Errorf("the machine was stopped: %w", err), "what went before is in its audit log: sb-policy log"))
			}
		})
	}
	go func() {
		if err := s.vm.awaitReady(vmReadyTime); err != nil {
			e.end(err)
			return
		}
		close(s.up)
		<-s.vm.done
		e.end(s.machineEnd())
	}()
}

// machineEnd is the error of a machine that ended before its command.
func (s *sandbox) machineEnd() error {
	cause := s.vm.end()
	if s.vm.err == nil {
		cause = say.WithHint(errors.New("the machine ended before its command: it was powered off or restarted from inside, or its kernel gave up"), "the machine ends with the command; nothing inside needs to end it")
		for _, l := range s.dir.consoleEnd() {
			cause = say.WithHint(cause, "console: %s", l)
		}
	}
	return s.vm.failed(cause)
}

// end ends every process and waits for them. The machine goes first: what it
// writes back must still have its gate and shares.
func (s *sandbox) end(hurry context.Context) {
	if s.vm != nil {
		s.vm.stop(os.Interrupt, vmEndTime, hurry)
	}
	for _, p := range []*part{s.gate, s.dns} {
		if p != nil {
			p.stop(hurry)
		}
	}
	if s.guest != nil {
		s.guest.Close()
	}
	s.frames.close()
	s.dnsWire.close()
	s.leash.close()
}

// noteDeath writes the line that a dead gate cannot write itself: the log's claim
// ends there and begins with the next gate.
func (s *sandbox) noteDeath(c *child, again bool) {
	why := reason.GateDied
	if c.name == "sb-dns" {
		why = reason.DNSDied
	}
	line := audit.Line{Time: time.Now(), Verdict: audit.Note, Gate: audit.Run, Name: s.dir.name, Reason: why, Words: []audit.Word{{Key: "by", Value: "sb"}}}
	f, err := s.dir.openAudit()
	if err == nil {
		_, err = f.Write(line.Append(nil))
		f.Close()
	}
	if err != nil {
		say.Warn("note in the audit log that %s died: %v", c.name, err)
	}
	if !again {
		return
	}
	how, _ := c.said.words()
	if how == "" {
		how = fmt.Sprint(c.err)
	}
	say.Warn("%s died (%s) and is started again; open connections of the sandbox %s", c.name, how, map[string]string{"sb-gate": "were reset", "sb-dns": "go on"}[c.name])
}

// rotate gives the gate a new log.
func (s *sandbox) rotate() {
	s.rotating.Lock()
	defer s.rotating.Unlock()
	f, err := s.dir.rotateAudit()
	if err == nil {
		defer f.Close()
		var m ctl.Message
		if m, err = s.gate.ask(context.Background(), ctl.Message{{Key: "ask", Value: "audit"}}, f); err == nil && m.Get("error") != "" {
			err = fmt.Errorf("sb-gate: %s", m.Get("error"))
		}
	}
	if err != nil {
		say.Warn("give sb-gate a new audit log: %v", err)
	}
}
