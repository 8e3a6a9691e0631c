package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"sb/lib/audit"
	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/reason"
	"sb/lib/say"
	"sb/lib/session"
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
	dir      *runDir
	manifest string
	frames   pair2
	dnsWire  pair2
	leash    pair2 // the far end is every child's; closing the near one ends them all

	gate, dns *part
	vm        *child
	guest     *os.File // the near end of the guest stream
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
func startSandbox(d *runDir) (s *sandbox, ready <-chan error, err error) {
	s = &sandbox{dir: d, manifest: d.file("sandbox.toml")}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if s.frames, err = newPair("frames", fd.Dgram); err != nil {
		return s, nil, err
	}
	if s.dnsWire, err = newPair("dns", fd.Stream); err != nil {
		return s, nil, err
	}
	if s.leash, err = newPair("leash", fd.Stream); err != nil {
		return s, nil, err
	}
	s.dns = &part{name: "sb-dns", start: s.startDNS}
	s.gate = &part{name: "sb-gate", start: s.startGate}
	dnsReady, err := s.dns.begin()
	if err != nil {
		return s, nil, err
	}
	gateReady, err := s.gate.begin()
	if err != nil {
		return s, nil, err
	}
	if err = errors.Join(<-dnsReady, <-gateReady); err != nil {
		return s, nil, err
	}
	guest, err := newPair("guest", fd.Stream)
	if err != nil {
		return s, nil, err
	}
	defer guest.far.Close()
	s.guest = guest.near
	s.vm, ready, err = startChild("sb-vm", s.manifest, s.leash.far, wire{"frames", s.frames.far}, wire{"guest", guest.far})
	return s, ready, err
}

func (s *sandbox) startDNS() (*child, *ctl.Conn, <-chan error, error) {
	return s.startPart("sb-dns", wire{"dns", s.dnsWire.far})
}

func (s *sandbox) startGate() (*child, *ctl.Conn, <-chan error, error) {
	log, err := s.dir.openAudit()
	if err != nil {
		return nil, nil, nil, err
	}
	defer log.Close()
	return s.startPart("sb-gate", wire{"frames", s.frames.near}, wire{"dns", s.dnsWire.near}, wire{"audit", log})
}

// startPart starts a tool that can be started again, with a ctl wire.
func (s *sandbox) startPart(name string, wires ...wire) (*child, *ctl.Conn, <-chan error, error) {
	p, err := newPair("ctl", fd.Stream)
	if err != nil {
		return nil, nil, nil, err
	}
	defer p.far.Close()
	c, ready, err := startChild(name, s.manifest, s.leash.far, append(wires, wire{"ctl", p.far})...)
	if err != nil {
		p.near.Close()
		return nil, nil, nil, err
	}
	conn, err := ctl.NewConn(p.near)
	return c, conn, ready, err
}

// end ends every process and waits for them. The machine goes first: what it
// writes back must still have its gate and shares.
func (s *sandbox) end() {
	if s.vm != nil && !s.vm.ended() {
		s.vm.cmd.Process.Signal(os.Interrupt)
		waitOr(s.vm.done, vmEndTime, func() { s.vm.cmd.Process.Kill() })
	}
	for _, p := range []*part{s.gate, s.dns} {
		if p != nil {
			p.stop()
		}
	}
	if s.guest != nil {
		s.guest.Close()
	}
	s.frames.close()
	s.dnsWire.close()
	s.leash.close()
}

// How long a child may take to end by itself. sb-vm gives the guest 3 seconds.
const (
	vmEndTime   = 6 * time.Second
	partEndTime = 2 * time.Second
)

func waitOr(done <-chan struct{}, d time.Duration, otherwise func()) {
	select {
	case <-done:
		return
	case <-time.After(d):
	}
	otherwise()
	<-done
}

// noteDeath writes the line that a dead gate cannot write itself: the log's claim
// ends there and begins with the next gate.
func (s *sandbox) noteDeath(p *part) {
	why := reason.GateDied
	if p == s.dns {
		why = reason.DNSDied
	}
	if f, err := s.dir.openAudit(); err == nil {
		defer f.Close()
		line := audit.Line{Time: time.Now(), Verdict: audit.Note, Gate: audit.Run, Name: s.dir.name, Reason: why, Words: []audit.Word{{Key: "by", Value: "sb"}}}
		f.Write(line.Append(nil))
	}
	say.Warn("%s died (%v) and is started again; open connections of the sandbox were reset", p.name, p.lastErr())
}

// openSession speaks the guest stream; it waits until the guest answers.
func (s *sandbox) openSession() (*session.Host, error) {
	conn, err := fileConn(s.guest)
	if err != nil {
		return nil, fmt.Errorf("open the guest stream: %w", err)
	}
	s.guest = nil
	return session.NewHost(conn)
}
