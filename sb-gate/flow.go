package main

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// flow is one TCP connection of the guest's and its other half outside.
type flow struct {
	g       *gate
	to      target
	verdict rule.Verdict
	at      netip.AddrPort // where the outer connection leads
	outer   *net.TCPConn
	guest   *guestConn
	began   time.Time
	active  atomic.Int64 // when a byte last moved, in Unix nanoseconds

	up, down atomic.Int64 // payload bytes on the outer socket

	once    sync.Once
	allowed atomic.Bool // its allow line is in the log
	parting atomic.Bool // what the gate says follows what the server says
	why     reason.Code // how it ended
}

// handleTCP is called for each SYN of the guest's. The outer connection is made
// first and the guest's handshake completed after it, so that a server which
// refuses or is dead looks like one.
func (g *gate) handleTCP(r *tcp.ForwarderRequest) {
	f := g.open(dialled(r.ID()))
	if f == nil {
		r.Complete(true) // RST: the guest sees "connection refused" at once
		return
	}
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	r.Complete(err != nil)
	if err != nil {
		f.reset(reason.Reset)
		return
	}
	f.guest = newGuestConn(&wq, ep)
	f.serve()
}

// open judges a dial and makes the outer connection; nil if there is none.
func (g *gate) open(addr netip.AddrPort) *flow {
	to, v := g.judge(addr, rule.TCP)
	if !v.Allow {
		g.refuse(audit.TCP, to, addr, v)
		return nil
	}
	if !g.log.Usable() {
		g.refuse(audit.TCP, to, addr, rule.Verdict{Reason: reason.AuditUnavailable})
		return nil
	}
	if why := g.flows.take(addr); why != "" {
		g.refuse(audit.TCP, to, addr, rule.Verdict{Reason: why})
		return nil
	}
	f := g.dialFlow(to, v)
	g.flows.dialled(addr, f)
	return f
}

func (g *gate) dialFlow(to target, v rule.Verdict) *flow {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	places, at, bad := g.places(ctx, to, rule.TCP)
	if len(places) == 0 {
		g.refuse(audit.TCP, to, at, bad)
		return nil
	}
	conn, _ := g.connect(context.Background(), to, places)
	if conn == nil {
		return nil
	}
	f := &flow{g: g, to: to, verdict: v, outer: conn, at: conn.RemoteAddr().(*net.TCPAddr).AddrPort(), began: time.Now()}
	f.at = netip.AddrPortFrom(f.at.Addr().Unmap(), f.at.Port())
	f.touch()
	return f
}

// judgeAgain decides about an open flow by the rules that are in force now.
func (g *gate) judgeAgain(f *flow) (target, rule.Verdict) {
	to, v := g.judge(f.to.addr, rule.TCP)
	if v.Allow && to.name != (rule.Name{}) {
		v = g.rules().Reach(to.name, f.at.Addr(), g.hosts.class(f.at.Addr()), rule.TCP, f.at.Port())
	}
	return to, v
}

func (f *flow) touch() { f.active.Store(time.Now().UnixNano()) }

// serve lets the flow's bytes through as far as they prove what they must.
func (f *flow) serve() {
	if f.verdict.Any {
		if f.allow() {
			f.splice(nil)
		}
		return
	}
	first := f.identify()
	switch first.kind {
	case kindRaw:
		if f.allow() {
			f.splice(first.bytes)
		}
	case kindTLS:
		f.serveTLS(first)
	case kindHTTP:
		f.serveHTTP(first.bytes)
	case kindEnded:
		f.finish(reason.Done)
	case kindRefused:
		f.deny(first.gate, first.why, "", "")
	}
}

// allow writes the line that lets the flow's bytes out. False: it could not be
// written, and the flow is over.
func (f *flow) allow() bool {
	line := audit.Line{Verdict: audit.Allow, Gate: audit.TCP, Name: f.to.name.String(), Address: f.at.String(), Reason: reason.AllowRule, Rule: f.verdict.Rule}
	if f.g.log.Allow(line) {
		f.allowed.Store(true)
		return true
	}
	f.deny(audit.TCP, reason.AuditUnavailable, "", "")
	return false
}

// deny refuses what the guest sent on a connection that stands: its line has
// the name that was asked for, if there was one.
func (f *flow) deny(gate audit.Gate, why reason.Code, name, byRule string) {
	f.denyLine(gate, why, name, byRule)
	f.reset(why)
}

func (f *flow) denyLine(gate audit.Gate, why reason.Code, name, byRule string) {
	if name == "" {
		name = f.to.name.String()
	}
	f.g.log.Fold(audit.Line{Verdict: audit.Deny, Gate: gate, Name: name, Address: f.at.String(), Reason: why, Rule: byRule})
}

// reset ends both halves at once.
func (f *flow) reset(why reason.Code) {
	f.once.Do(func() {
		f.why = why
		closeNow(f.outer)
		if f.guest != nil {
			f.guest.reset()
		}
		f.end()
	})
}

// answer refuses with words: the outer half ends at once, the guest's after the
// answer.
func (f *flow) answer(why reason.Code, words []byte) {
	f.once.Do(func() {
		f.why = why
		closeNow(f.outer)
		f.guest.farewell(words)
		f.end()
	})
}

// finish ends both halves after everything was passed on.
func (f *flow) finish(why reason.Code) {
	f.once.Do(func() {
		f.why = why
		f.outer.Close()
		f.guest.Close()
		f.end()
	})
}

// end writes the last lines of the flow.
func (f *flow) end() {
	defer f.g.flows.end(f)
	line := audit.Line{Gate: audit.TCP, Name: f.to.name.String(), Address: f.at.String(), Reason: f.why}
	by := audit.Word{Key: "by", Value: "guest"}
	if !f.allowed.Load() {
		// The connection was opened, so it is in the log, though nothing of the
		// guest's went out on it.
		line.Verdict, line.Words = audit.Dial, []audit.Word{by}
		f.g.log.Record(line)
	}
	line.Verdict = audit.Close
	line.Words = []audit.Word{audit.Int("up", f.up.Load()), audit.Int("down", f.down.Load()),
		audit.Int("ms", time.Since(f.began).Milliseconds()), by}
	f.g.log.Record(line)
}
