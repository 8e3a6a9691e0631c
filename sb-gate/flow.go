package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// flow is one TCP connection of the guest's and its other half outside.
//
// One goroutine, serve, owns it and starts the ones that pump; any goroutine may
// reset it. However it ends, it ends once, and that writes its last lines.
type flow struct {
	g       *gate
	to      target
	verdict rule.Verdict // about the address that the outer half leads to
	outer   *outerConn
	began   time.Time
	active  atomic.Int64 // when a byte last moved, in Unix nanoseconds
	parting atomic.Bool  // what the gate says follows what the server says

	mu      sync.Mutex
	guest   *guestConn          // nil until its handshake is complete
	inner   *net.UnixConn       // the pair to sb-broker, which serves it; nil: the gate does
	also    map[rule.Name]*also // the names besides the handle's that its bytes are for
	proven  bool                // its bytes are TLS or HTTP
	allowed bool                // its allow line is in the log
	over    bool
}

// handleTCP is called for each SYN of the guest's that was admitted. The outer
// connection is made first and the guest's handshake completed after it, so that
// a server which refuses or is dead looks like one.
func (g *gate) handleTCP(r *tcp.ForwarderRequest) {
	growStack()
	id := r.ID()
	slot, _ := g.flows.dial(id)
	defer g.flows.leave(slot)
	f := g.dialFlow(slot.to)
	if f == nil {
		r.Complete(true)
		g.flows.dialled(id, false)
		return
	}
	defer g.flows.remove(f)
	met := f.meet(r, slot.roomy)
	g.flows.dialled(id, met)
	if met {
		f.serve()
	}
}

// admit judges a dial and takes a slot for it.
func (g *gate) admit(id stack.TransportEndpointID) (slot, bool) {
	addr := dialled(id)
	to, v := g.judge(addr, rule.TCP)
	if v.Allow && !g.log.Usable() {
		v = rule.Verdict{Reason: reason.AuditUnavailable}
	}
	if v.Allow {
		why := g.flows.take(id, to)
		if why == "" {
			return g.flows.dial(id)
		}
		v = rule.Verdict{Reason: why}
	}
	g.refuse(audit.TCP, to, addr.String(), v)
	return slot{}, false
}

// dialFlow makes the outer half; nil if there is none.
func (g *gate) dialFlow(to target) *flow {
	ctx, cancel := context.WithTimeout(g.ctx, resolveTime)
	defer cancel()
	places, bad := g.places(ctx, to, rule.TCP)
	if len(places) == 0 {
		g.refuse(audit.TCP, to, bad.at.String(), bad.verdict)
		return nil
	}
	began := time.Now()
	outer, v := g.connect(to, places)
	if outer == nil {
		return nil
	}
	f := &flow{g: g, to: to, verdict: v, outer: outer, began: began}
	f.touch()
	// The rules may have been replaced since they were asked, or the gate be at
	// its end; from here on whoever does that sees this flow.
	if !g.flows.add(f) {
		f.reset(reason.GateEnd)
	} else if !f.stands() {
		f.reset(reason.PolicyChanged)
	}
	return f
}

// meet completes the guest's handshake. False: the flow is over.
func (f *flow) meet(r *tcp.ForwarderRequest, roomy bool) bool {
	if f.isOver() {
		r.Complete(true)
		return false
	}
	guest := f.g.shake(r, roomy)
	if guest == nil {
		f.reset(reason.Reset)
		return false
	}
	f.outer.buffers = guest.buffers
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over { // it was reset in the meantime, before there was a guest to tell
		guest.reset()
		return false
	}
	f.guest = guest
	return true
}

// stands says whether the rules that are in force now would let the flow be.
func (f *flow) stands() bool {
	f.mu.Lock()
	proven := f.proven
	f.mu.Unlock()
	_, v := f.g.judge(f.to.addr, rule.TCP)
	if v.Allow && f.to.name != (rule.Name{}) {
		v = f.reach(f.to.name)
	}
	switch {
	case !v.Allow:
		return false
	case !proven && (f.verdict.Raw && !v.Raw || f.verdict.Any && !v.Any):
		return false // it may be what must be proven now
	}
	for _, n := range f.others() {
		if !f.reach(n).Allow {
			return false
		}
	}
	return true
}

// reach says what the rules have on a name where the flow leads.
func (f *flow) reach(n rule.Name) rule.Verdict {
	at := f.outer.at
	return f.g.rules().Reach(n, at.Addr(), f.g.hosts.class(at.Addr()), rule.TCP, at.Port())
}

func (f *flow) touch() { f.active.Store(time.Now().UnixNano()) }

func (f *flow) moved() int64 { return f.active.Load() }

func (f *flow) quiet(now time.Time) bool {
	return now.UnixNano()-f.active.Load() > int64(idleTime)
}

// serve lets the flow's bytes through as far as they prove what they must.
func (f *flow) serve() {
	if f.verdict.Any {
		if f.allow(false) {
			f.splice(nil)
		}
		return
	}
	first := f.identify()
	switch first.kind {
	case kindRaw:
		if f.allow(false) {
			f.splice(first.bytes)
		}
	case kindTLS:
		f.serveTLS(first)
	case kindHTTP:
		f.serveHTTP(first.bytes)
	case kindEnded:
		f.finish(reason.Done)
	case kindBroken:
		f.reset(reason.Reset)
	case kindRefused:
		f.deny(first.gate, first.why, "", "")
	}
}

// allow writes the line that lets the flow's bytes out. False: it could not be
// written, or the flow is over.
func (f *flow) allow(proven bool) bool {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return false
	}
	line := f.line(audit.Allow, reason.AllowRule)
	line.Rule = f.verdict.Rule
	f.proven = proven
	f.allowed = f.g.log.Allow(line)
	f.mu.Unlock()
	if !f.allowed {
		f.deny(audit.TCP, reason.AuditUnavailable, "", "")
	}
	return f.allowed
}

func (f *flow) line(v audit.Verdict, why reason.Code) audit.Line {
	return audit.Line{Verdict: v, Gate: audit.TCP, Name: f.to.name.String(), Address: f.outer.at.String(), Reason: why}
}

// deny refuses what the guest sent on a connection that stands: its line has
// the name that was asked for, if there was one.
func (f *flow) deny(gate audit.Gate, why reason.Code, name, byRule string) {
	f.denyLine(gate, why, name, byRule)
	f.reset(why)
}

// denyLine writes the line of a refusal, unless the flow is over already.
func (f *flow) denyLine(gate audit.Gate, why reason.Code, name, byRule string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	line := f.line(audit.Deny, why)
	line.Gate, line.Rule = gate, byRule
	if name != "" {
		line.Name = name
	}
	f.g.log.Fold(line)
}

// reset ends both halves at once.
func (f *flow) reset(why reason.Code) {
	f.end(why, f.outer.cut)
	f.mu.Lock()
	guest := f.guest
	f.mu.Unlock()
	if guest != nil {
		guest.reset()
	}
}

// answer refuses with words: the outer half ends at once, the guest's after the
// answer.
func (f *flow) answer(why reason.Code, words []byte) {
	if f.end(why, f.outer.cut) {
		f.guest.farewell(words)
	}
}

// finish ends both halves after everything was passed on.
func (f *flow) finish(why reason.Code) {
	if f.end(why, f.outer.close) {
		f.guest.part()
	}
}

// end ends the outer half and writes the last lines of the flow. False: it had
// ended.
func (f *flow) end(why reason.Code, outer func() (up, down int64)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	f.over = true
	if f.inner != nil {
		f.inner.Close()
	}
	up, down := outer()
	by := audit.Word{Key: "by", Value: "guest"}
	if !f.allowed {
		// The connection was opened, so it is in the log, though nothing of the
		// guest's went out on it.
		line := f.line(audit.Dial, why)
		line.Words = []audit.Word{by}
		f.g.log.Record(line)
	}
	line := f.line(audit.Close, why)
	line.Words = []audit.Word{audit.Int("up", up), audit.Int("down", down), audit.Int("ms", time.Since(f.began).Milliseconds()), by}
	f.g.log.Record(line)
	return true
}

func (f *flow) isOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// growStack makes room on a new goroutine's stack at once for what a flow needs.
// Else it grows in steps, each of which moves what is on it by then.
//
//go:noinline
func growStack() byte {
	var room [flowStack]byte
	return room[len(room)-1-int(depth)]
}

const flowStack = 12 << 10 // bytes

var depth byte // 0; the compiler does not know
