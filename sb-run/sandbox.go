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
// With credentials there are also
//
//	         broker              secrets
//	sb-gate ──────── sb-broker ─────────── sb-broker keep
//
// sb-run keeps both ends of frames, dns and broker, so that a part which died can
// be started again on the same wire.
type sandbox struct {
	dir     *runDir
	tools   tools
	plan    *plan
	frames  pair2
	dnsWire pair2
	leash   pair2 // the far end is every child's; closing the near one ends them all

	gate, dns *part
	broker    *broker // nil without credentials
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

// newControl makes a part's control wire: far is the part's end, the caller's to close
// once the part has it.
func newControl() (far *os.File, conn *ctl.Conn, err error) {
	p, err := newPair("ctl", fd.Stream)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = ctl.NewConn(p.near); err != nil {
		p.close()
		return nil, nil, err
	}
	return p.far, conn, nil
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
func startSandbox(d *runDir, t tools, p *plan, e *ending) (*sandbox, error) {
	s := &sandbox{dir: d, tools: t, plan: p, up: make(chan struct{})}
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
	if secrets := secretNames(s.plan.m); len(secrets) > 0 {
		if s.broker, err = s.newBroker(e, secrets, s.plan.given); err != nil {
			return err
		}
	}
	if err := s.startParts(e); err != nil {
		return err
	}
	return s.startMachine()
}

// startParts starts the resolver, the gate and the broker, and waits until all are
// ready.
func (s *sandbox) startParts(e *ending) error {
	dnsReady, gateReady := make(chan error, 1), make(chan error, 1)
	var brokerReady chan error
	if s.broker != nil {
		brokerReady = make(chan error, 2)
		s.broker.watched.Go(func() { // it waits for the keeper, which may wait for the user
			if err := s.broker.begin(brokerReady); err != nil {
				brokerReady <- err
			}
		})
	}
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
	for dnsReady != nil || gateReady != nil || brokerReady != nil {
		var err error
		select {
		case err = <-dnsReady:
			dnsReady, dnsDied = nil, s.dns.child.done
		case err = <-gateReady:
			gateReady = nil
		case err = <-brokerReady:
			brokerReady = nil
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
	wires := []wire{{"frames", s.frames.near}, {"dns", s.dnsWire.near}, {"audit", log}}
	if s.broker != nil {
		wires = append(wires, wire{"broker", s.broker.wire.near})
	}
	return s.startPart("sb-gate", wires...)
}

// startPart starts a tool that can be started again, with a ctl wire.
func (s *sandbox) startPart(name string, wires ...wire) (*child, *ctl.Conn, error) {
	if err := s.dir.checkManifest(); err != nil {
		return nil, nil, err
	}
	far, conn, err := newControl()
	if err != nil {
		return nil, nil, err
	}
	defer far.Close()
	c, err := s.tools.startChild(name, s.dir.file("sandbox.toml"), s.leash.far, append(wires, wire{"ctl", far})...)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return c, conn, nil
}

// supervise keeps the gate, the resolver and the broker alive, and ends the run
// with the machine.
func (s *sandbox) supervise(e *ending) {
	parts := []*part{s.gate, s.dns}
	if s.broker != nil {
		parts = append(parts, &s.broker.part)
	}
	for _, p := range parts {
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
	if s.broker != nil {
		s.broker.end(hurry)
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
	why := map[string]reason.Code{"sb-gate": reason.GateDied, "sb-dns": reason.DNSDied, "sb-broker": reason.BrokerDied}[c.name]
	s.note(audit.Line{Time: time.Now(), Verdict: audit.Note, Gate: audit.Run, Name: s.dir.name, Reason: why, Words: []audit.Word{{Key: "by", Value: "sb"}}})
	if !again {
		return
	}
	how, _ := c.said.words()
	if how == "" {
		how = fmt.Sprint(c.err)
	}
	say.Warn("%s died (%s) and is started again; open connections of the sandbox %s", c.name, how, map[string]string{"sb-gate": "were reset", "sb-dns": "go on", "sb-broker": "to the hosts of its secrets were reset"}[c.name])
}

// note enters a line of our own into the log.
func (s *sandbox) note(line audit.Line) {
	f, err := s.dir.openAudit()
	if err == nil {
		_, err = f.Write(line.Append(nil))
		f.Close()
	}
	if err != nil {
		say.Warn("note %s in the audit log: %v", line.Reason, err)
	}
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
