package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// udpFlow is the datagrams between one port of the guest's and one place.
type udpFlow struct {
	g       *gate
	to      target
	at      netip.AddrPort
	outer   *net.UDPConn
	guest   *gonet.UDPConn
	active  atomic.Int64 // when a datagram last came, in Unix nanoseconds
	up      atomic.Int64 // payload bytes on the outer socket
	down    atomic.Int64
	mu      sync.Mutex
	why     reason.Code // how it ended; "" as long as it has not
	verdict rule.Verdict
}

// handleUDP is called for the first datagram of each flow. False makes the stack
// answer that the port is unreachable: QUIC then falls back to TCP at once.
func (g *gate) handleUDP(r *udp.ForwarderRequest) bool {
	addr := dialled(r.ID())
	to, v := g.judge(addr, rule.UDP)
	if v.Allow && !g.log.Usable() {
		v = rule.Verdict{Reason: reason.AuditUnavailable}
	}
	if v.Allow {
		if why := g.flows.takeOne(&g.flows.udp, maxUDPFlows, reason.FlowBudget); why != "" {
			v = rule.Verdict{Reason: why}
		}
	}
	if !v.Allow {
		g.refuse(audit.UDP, to, addr.String(), v)
		return false
	}
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	if err != nil {
		g.flows.free(&g.flows.udp)
		return false
	}
	go func() {
		defer g.flows.free(&g.flows.udp)
		guest := gonet.NewUDPConn(&wq, ep)
		defer guest.Close()
		if f := g.dialUDP(guest, to); f != nil {
			f.relay()
		}
	}()
	return true
}

// dialUDP makes the outer half of a flow; nil if there is none.
func (g *gate) dialUDP(guest *gonet.UDPConn, to target) *udpFlow {
	ctx, cancel := context.WithTimeout(g.ctx, resolveTime)
	defer cancel()
	places, bad := g.places(ctx, to, rule.UDP)
	if len(places) == 0 {
		g.refuse(audit.UDP, to, bad.at.String(), bad.verdict)
		return nil
	}
	at := places[0].at
	outer, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		g.refuse(audit.UDP, to, at.String(), rule.Verdict{Reason: dialReason(err)})
		return nil
	}
	f := &udpFlow{g: g, to: to, at: at, outer: outer, guest: guest, verdict: places[0].verdict}
	f.touch()
	return f
}

func (f *udpFlow) touch() { f.active.Store(time.Now().UnixNano()) }

// relay passes datagrams both ways until none has come for a while.
func (f *udpFlow) relay() {
	defer f.outer.Close()
	defer f.g.flows.remove(f)
	line := audit.Line{Verdict: audit.Allow, Gate: audit.UDP, Name: f.to.name.String(), Address: f.at.String(), Reason: reason.AllowRule, Rule: f.verdict.Rule}
	if !f.g.flows.add(f) || !f.stands() || !f.g.log.Allow(line) {
		f.g.refuse(audit.UDP, f.to, f.at.String(), rule.Verdict{Reason: f.unborn()})
		return
	}
	began := time.Now()
	both := make(chan struct{}, 1)
	go func() {
		f.reset(f.passOut())
		both <- struct{}{}
	}()
	f.reset(f.passIn())
	<-both
	line.Verdict, line.Reason, line.Rule = audit.Close, f.why, ""
	line.Words = []audit.Word{audit.Int("up", f.up.Load()), audit.Int("down", f.down.Load()),
		audit.Int("ms", time.Since(began).Milliseconds()), {Key: "by", Value: "guest"}}
	f.g.log.Record(line)
}

// unborn is why a flow did not begin.
func (f *udpFlow) unborn() reason.Code {
	switch {
	case f.g.ctx.Err() != nil:
		return reason.GateEnd
	case !f.stands():
		return reason.PolicyChanged
	}
	return reason.AuditUnavailable
}

// passOut passes the guest's datagrams out, and returns how that ended.
func (f *udpFlow) passOut() reason.Code {
	buf := make([]byte, 65535)
	for {
		n, err := f.guest.Read(buf)
		if err != nil {
			return reason.Reset // the guest's port is closed
		}
		f.touch()
		n, err = f.outer.Write(buf[:n])
		f.up.Add(int64(n))
		if err != nil && !passing(err) {
			return dialReason(err)
		}
	}
}

// passIn passes the server's datagrams in, and returns how that ended.
func (f *udpFlow) passIn() reason.Code {
	buf := make([]byte, 65535)
	for {
		n, err := f.outer.Read(buf)
		switch {
		case err == nil:
			f.down.Add(int64(n))
			f.touch()
			f.guest.Write(buf[:n])
		case !passing(err):
			return dialReason(err)
		}
	}
}

// passing says whether an error is about one datagram: a port that is closed
// now, a way that is not there. The next one may come through.
func passing(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EMSGSIZE, syscall.ENOBUFS, syscall.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// reset ends the flow.
func (f *udpFlow) reset(why reason.Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == "" {
		f.why = why
		f.outer.Close()
		f.guest.Close()
	}
}

// stands says whether the rules that are in force now would let the flow be.
func (f *udpFlow) stands() bool {
	_, v := f.g.judge(f.to.addr, rule.UDP)
	if v.Allow && f.to.name != (rule.Name{}) {
		v = f.g.rules().Reach(f.to.name, f.at.Addr(), f.g.hosts.class(f.at.Addr()), rule.UDP, f.at.Port())
	}
	return v.Allow
}

func (f *udpFlow) moved() int64 { return f.active.Load() }

func (f *udpFlow) quiet(now time.Time) bool {
	return now.UnixNano()-f.active.Load() > int64(udpIdleTime)
}
