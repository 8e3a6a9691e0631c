//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sb/lib/ctl"
	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/say"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// sandbox is a whole gate, started by its own entry, with a guest on its wire, a
// fake sb-dns on the other one, and the log as it is written.
type sandbox struct {
	t     *testing.T
	guest *guest
	dns   *fakeDNS
	ctl   *ctl.Conn
	leash *os.File
	set   *rule.Set

	answers, events chan ctl.Message
	done            chan error // the gate has ended, so
	err             error
	over            bool
	log             auditLog
	before          opened
	started         int64

	sites   []*site
	inexact bool // the byte counts cannot be compared: something was cut in flight
}

// running counts the sandboxes that were started, and stopped.
var running struct{ started, stopped atomic.Int64 }

// start runs a gate with rules, of which those that begin with "!" deny. What it
// left behind is checked at the end of the test.
func start(t *testing.T, rules ...string) *sandbox {
	t.Helper()
	return startWith(t, nil, rules...)
}

// startWith is start with a log of its own.
func startWith(t *testing.T, log *os.File, rules ...string) *sandbox {
	t.Helper()
	return startBrokered(t, log, nil, rules...)
}

// startBrokered is startWith with a wire to sb-broker, if there is one.
func startBrokered(t *testing.T, log, broker *os.File, rules ...string) *sandbox {
	t.Helper()
	s := &sandbox{t: t, done: make(chan error, 1), answers: make(chan ctl.Message, 1), events: make(chan ctl.Message, 16), before: open(), started: running.started.Add(1)}
	m, set := policyOf(t, rules...)
	s.set = set
	w := wires{broker: broker}
	var frames, dns, control, ready *os.File
	w.frames, frames = s.pair("frames", fd.Dgram)
	w.dns, dns = s.pair("dns", fd.Stream)
	w.ctl, control = s.pair("ctl", fd.Stream)
	w.leash, s.leash = s.pair("leash", fd.Stream)
	w.ready, ready = s.pair("ready", fd.Stream)
	if w.audit = log; log == nil {
		r, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w.audit = wr
		s.log.read(t, r)
	}
	var err error
	if s.ctl, err = ctl.NewConn(control); err != nil {
		t.Fatal(err)
	}
	go s.listen()
	s.dns = newFakeDNS(m.Network, set, dns)
	go s.dns.run()
	go func() { s.done <- serve(m, set, w) }()
	if err := fd.WaitReady(ready, say.Version); err != nil {
		t.Fatalf("the gate is not ready: %v", err)
	}
	ready.Close()
	s.dns.asked.Store(0) // it was asked once, by the gate that proves itself
	s.guest = newGuest(t, m.Network, frames)
	t.Cleanup(s.check)
	return s
}

// policyOf is a manifest with rules, and its set. "mtu=N" and "ech=X" are none of
// them.
func policyOf(t *testing.T, rules ...string) (*manifest.Manifest, *rule.Set) {
	t.Helper()
	m, err := manifest.Parse("test.toml", []byte("name = \"test\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if mtu, ok := strings.CutPrefix(r, "mtu="); ok {
			fmt.Sscan(mtu, &m.Network.MTU)
		} else if ech, ok := strings.CutPrefix(r, "ech="); ok {
			m.Network.ECH = manifest.ECH(ech)
		} else if name, ok := strings.CutPrefix(r, "bind="); ok {
			m.Credentials = append(m.Credentials, bindingOf(name))
		} else if deny, ok := strings.CutPrefix(r, "!"); ok {
			m.Rules.Deny = append(m.Rules.Deny, deny)
		} else {
			m.Rules.Allow = append(m.Rules.Allow, r)
		}
	}
	set, err := rule.Load(rule.Source{Origin: "test", Allow: m.Rules.Allow, Deny: m.Rules.Deny})
	if err != nil {
		t.Fatal(err)
	}
	return m, set
}

// pair makes a wire; the gate's end is taken as the gate takes what it inherits.
func (s *sandbox) pair(name string, kind fd.Kind) (gates, far *os.File) {
	s.t.Helper()
	ends := [2]*os.File{}
	a, b, err := fd.Pair(name, kind)
	if err != nil {
		s.t.Fatal(err)
	}
	for i, f := range []*os.File{a, b} {
		n, err := unix.Dup(int(f.Fd())) // without close-on-exec, as inherited
		if err != nil {
			s.t.Fatal(err)
		}
		f.Close()
		if ends[i], err = fd.Take(name, n, kind); err != nil {
			s.t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// listen tells what the gate answers from what it says unasked.
func (s *sandbox) listen() {
	defer close(s.answers)
	for {
		m, _, err := s.ctl.Receive()
		switch {
		case err != nil:
			return
		case m.Get("event") != "":
			s.events <- m
		default:
			s.answers <- m
		}
	}
}

// ask asks the gate over ctl.
func (s *sandbox) ask(m ctl.Message, files ...*os.File) ctl.Message {
	s.t.Helper()
	if err := s.ctl.Send(m, files...); err != nil {
		s.t.Fatal(err)
	}
	select {
	case answer := <-s.answers:
		return answer
	case <-time.After(10 * time.Second):
		s.t.Fatalf("no answer to %v", m)
	}
	return nil
}

// rules replaces the rules of the gate and of the fake sb-dns.
func (s *sandbox) rules(generation int, rules ...string) {
	s.t.Helper()
	m, set := policyOf(s.t, rules...)
	ask := ctl.Message{{Key: "ask", Value: "rules"}, {Key: "generation", Value: fmt.Sprint(generation)}}
	for _, r := range m.Rules.Allow {
		ask = append(ask, ctl.Pair{Key: "allow", Value: r})
	}
	for _, r := range m.Rules.Deny {
		ask = append(ask, ctl.Pair{Key: "deny", Value: r})
	}
	s.dns.mu.Lock()
	s.dns.set = set
	s.dns.mu.Unlock()
	if a := s.ask(ask); a.Get("ok") != "rules" || a.Get("generation") != fmt.Sprint(generation) {
		s.t.Fatalf("rules: %v", a)
	}
}

// handle asks for a name as the guest does, which must be allowed.
func (s *sandbox) handle(name string) netip.Addr {
	s.t.Helper()
	a, code, err := s.guest.lookup(name)
	if err != nil || !a.IsValid() {
		s.t.Fatalf("look up %s: %v %v %v", name, a, code, err)
	}
	return a
}

// dial opens a connection of the guest's to a name, which must succeed.
func (s *sandbox) dial(name string, port uint16) *gonet.TCPConn {
	s.t.Helper()
	c, err := s.guest.dial(netip.AddrPortFrom(s.handle(name), port))
	if err != nil {
		s.t.Fatalf("dial %s:%d: %v", name, port, err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	s.t.Cleanup(func() { c.Close() })
	return c
}

// refused dials a name and must be refused, as by a closed port.
func (s *sandbox) refused(name string, port uint16) {
	s.t.Helper()
	s.refusedAt(netip.AddrPortFrom(s.handle(name), port))
}

func (s *sandbox) refusedAt(at netip.AddrPort) {
	s.t.Helper()
	c, err := s.guest.dial(at)
	if err == nil {
		c.Close()
		s.t.Errorf("dial %s: it was opened", at)
	} else if !strings.Contains(err.Error(), "refused") {
		s.t.Errorf("dial %s: %v, not refused", at, err)
	}
}

// end ends the gate by its leash and returns how it ended.
func (s *sandbox) end() error {
	s.t.Helper()
	s.leash.Close()
	return s.wait()
}

// wait waits for the gate to end by itself.
func (s *sandbox) wait() error {
	s.t.Helper()
	if s.over {
		return s.err
	}
	select {
	case s.err = <-s.done:
		s.over = true
	case <-time.After(10 * time.Second):
		s.t.Fatal("the gate does not end")
	}
	return s.err
}

// check ends what is still there at the end of a test and looks at the whole of
// it: the log agrees with itself and with what the servers saw, and nothing is
// left.
func (s *sandbox) check() {
	if !s.over {
		if err := s.end(); err != nil {
			s.t.Errorf("the gate ended: %v", err)
		}
	}
	s.leash.Close()
	s.guest.close()
	s.dns.file.Close()
	for range s.answers { // until the gate's end is closed
	}
	s.ctl.Close()
	<-s.dns.ended
	s.log.wait()
	for _, site := range s.sites {
		site.settle(s.t, &s.log)
	}
	if !s.t.Failed() {
		s.log.agrees(s.t)
		for _, site := range s.sites {
			site.agrees(s.t, &s.log, s.inexact)
		}
	}
	if s.t.Failed() {
		s.t.Logf("the log:\n%s", s.log.String())
	}
	alone := running.started.Load() == s.started && running.stopped.Add(1) == s.started
	if alone && !s.t.Failed() {
		if left := s.before.leaks(); left != "" {
			s.t.Error(left)
		}
	}
}
