package main

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// handleUDP is called for the first datagram of each flow. False makes the stack
// answer that the port is unreachable: QUIC then falls back to TCP at once.
func (g *gate) handleUDP(r *udp.ForwarderRequest) bool {
	addr := dialled(r.ID())
	to, v := g.judge(addr, rule.UDP)
	switch {
	case !v.Allow:
	case !g.log.Usable():
		v = rule.Verdict{Reason: reason.AuditUnavailable}
	case g.udp.Add(1) > maxUDPFlows:
		g.udp.Add(-1)
		v = rule.Verdict{Reason: reason.FlowBudget}
	default:
		var wq waiter.Queue
		ep, err := r.CreateEndpoint(&wq)
		if err != nil {
			g.udp.Add(-1)
			return false
		}
		go func() {
			defer g.udp.Add(-1)
			g.relayUDP(gonet.NewUDPConn(&wq, ep), to, v)
		}()
		return true
	}
	g.refuse(audit.UDP, to, addr, v)
	return false
}

// relayUDP passes datagrams both ways until none has come for a while.
func (g *gate) relayUDP(guest *gonet.UDPConn, to target, v rule.Verdict) {
	defer guest.Close()
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	places, at, bad := g.places(ctx, to, rule.UDP)
	if len(places) == 0 {
		g.refuse(audit.UDP, to, at, bad)
		return
	}
	at = places[0]
	outer, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		g.refuse(audit.UDP, to, at, rule.Verdict{Reason: dialReason(err)})
		return
	}
	defer outer.Close()
	line := audit.Line{Verdict: audit.Allow, Gate: audit.UDP, Name: to.name.String(), Address: at.String(), Reason: reason.AllowRule, Rule: v.Rule}
	if !g.log.Allow(line) {
		g.refuse(audit.UDP, to, at, rule.Verdict{Reason: reason.AuditUnavailable})
		return
	}
	began := time.Now()
	var up, down, active atomic.Int64
	active.Store(began.UnixNano())
	go func() {
		// The end of this direction, by an error or an idle flow, ends the other.
		defer outer.Close()
		g.datagrams(outer, guest, &up, &active, to, at)
	}()
	g.datagrams(guest, outer, &down, &active, to, at)
	guest.Close()
	line.Verdict, line.Reason, line.Rule = audit.Close, reason.IdleTimeout, ""
	line.Words = []audit.Word{audit.Int("up", up.Load()), audit.Int("down", down.Load()),
		audit.Int("ms", time.Since(began).Milliseconds()), {Key: "by", Value: "guest"}}
	g.log.Record(line)
}

// datagrams passes datagrams from one side to the other and counts their bytes,
// while the rules still allow the flow.
func (g *gate) datagrams(dst, src net.Conn, n, active *atomic.Int64, to target, at netip.AddrPort) {
	buf := make([]byte, 65535)
	for {
		src.SetReadDeadline(time.Now().Add(udpIdleTime))
		size, err := src.Read(buf)
		if err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() && time.Since(time.Unix(0, active.Load())) < udpIdleTime {
				continue
			}
			return
		}
		if _, v := g.judge(to.addr, rule.UDP); !v.Allow {
			return
		}
		active.Store(time.Now().UnixNano())
		if _, err := dst.Write(buf[:size]); err == nil {
			n.Add(int64(size))
		}
	}
}
