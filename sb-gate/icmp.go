package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	pingTime  = 5 * time.Second // for an answer from outside
	pingEvery = time.Second     // to one host
	maxPinged = 256             // hosts that are remembered for it
)

// pingPayload is what goes out instead of the guest's bytes, which would be a
// channel: 56 bytes as of any ping.
var pingPayload = []byte("sb sb sb sb sb sb sb sb sb sb sb sb sb sb sb sb sb sb sb")

// pinger bounds how often a host is pinged.
type pinger struct {
	mu   sync.Mutex
	last map[netip.Addr]time.Time
}

// take reports whether a may be pinged now.
func (p *pinger) take(a netip.Addr, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last[a]) < pingEvery {
		return false
	}
	for old, t := range p.last {
		if now.Sub(t) >= pingEvery {
			delete(p.last, old)
		}
	}
	if len(p.last) >= maxPinged {
		return false
	}
	p.last[a] = now
	return true
}

// handleICMP answers an echo request of the guest's if the host that it is for
// answers ours. Nothing else of ICMP comes through the frame filter.
func (g *gate) handleICMP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	addr := addrOf(id.LocalAddress)
	if addr == g.net.Gateway() {
		return false // the stack answers for its own address
	}
	to, v := g.judge(netip.AddrPortFrom(addr, 0), rule.ICMP)
	if v.Allow && !g.log.Usable() {
		v = rule.Verdict{Reason: reason.AuditUnavailable}
	}
	if v.Allow && !g.ping.take(addr, time.Now()) {
		v = rule.Verdict{Reason: reason.PingBudget}
	}
	if v.Allow {
		if why := g.flows.takeOne(&g.flows.pings, maxPings, reason.PingBudget); why != "" {
			v = rule.Verdict{Reason: why}
		}
	}
	head := append([]byte(nil), pkt.NetworkHeader().Slice()...)
	request := append([]byte(nil), pkt.TransportHeader().Slice()...)
	request = append(request, pkt.Data().AsRange().ToSlice()...)
	if !v.Allow {
		g.refuse(audit.ICMP, to, addr.String(), v)
		if v.Reason != reason.PingBudget { // which looks like loss, as of any limit
			g.unreachable(header.ICMPv4AdminProhibited, head, request)
		}
		return true
	}
	go func() {
		defer g.flows.free(&g.flows.pings)
		if !g.echo(to, request) {
			g.unreachable(header.ICMPv4HostUnreachable, head, request)
		}
	}()
	return true
}

// echo pings the host in the gate's own words and, if it answers, gives the
// guest its own back. False: there is nothing that may be pinged.
func (g *gate) echo(to target, request []byte) bool {
	ctx, cancel := context.WithTimeout(g.ctx, resolveTime)
	defer cancel()
	places, bad := g.places(ctx, to, rule.ICMP)
	if len(places) == 0 {
		g.refuse(audit.ICMP, to, bad.at.Addr().String(), bad.verdict)
		return false
	}
	at, v := places[0].at.Addr(), places[0].verdict
	conn, err := openPing(at)
	if err != nil {
		g.refuse(audit.ICMP, to, at.String(), rule.Verdict{Reason: reason.PingUnavailable})
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(g.ctx, func() { conn.Close() })()
	line := audit.Line{Verdict: audit.Allow, Gate: audit.ICMP, Name: to.name.String(), Address: at.String(), Reason: reason.AllowRule, Rule: v.Rule}
	if !g.log.Allow(line) {
		g.refuse(audit.ICMP, to, at.String(), rule.Verdict{Reason: reason.AuditUnavailable})
		return false
	}
	began := time.Now()
	up, down, err := pingOnce(conn, at)
	line.Verdict, line.Reason, line.Rule = audit.Close, reason.Done, ""
	if err != nil {
		line.Reason = reason.NoAnswer
	}
	if g.ctx.Err() != nil {
		line.Reason = reason.GateEnd
	}
	line.Words = []audit.Word{audit.Int("up", up), audit.Int("down", down), audit.Int("ms", time.Since(began).Milliseconds()), {Key: "by", Value: "guest"}}
	g.log.Record(line)
	if err == nil {
		g.reply(to.addr.Addr(), request)
	}
	return true
}

// ping is a socket for echo requests and how to address it.
type ping struct {
	*icmp.PacketConn
	raw bool // with CAP_NET_RAW; else the kernel's ping socket
}

// openPing opens the kernel's ping socket, which an ordinary user may have
// (net.ipv4.ping_group_range), or a raw one.
func openPing(a netip.Addr) (ping, error) {
	network, listen := "udp4", "0.0.0.0"
	raw := "ip4:icmp"
	if a.Is6() {
		network, listen, raw = "udp6", "::", "ip6:ipv6-icmp"
	}
	if c, err := icmp.ListenPacket(network, listen); err == nil {
		return ping{c, false}, nil
	}
	c, err := icmp.ListenPacket(raw, listen)
	return ping{c, true}, err
}

// pingOnce sends one echo request to a and waits for its answer. It returns the
// payload bytes that went each way, ICMP's own header not counted.
func pingOnce(c ping, a netip.Addr) (up, down int64, err error) {
	var typ, want icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	proto := 1
	if a.Is6() {
		typ, want, proto = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	id := os.Getpid() & 0xffff
	msg, err := (&icmp.Message{Type: typ, Body: &icmp.Echo{ID: id, Seq: 1, Data: pingPayload}}).Marshal(nil)
	if err != nil {
		return 0, 0, err
	}
	var dst net.Addr = &net.UDPAddr{IP: a.AsSlice()}
	if c.raw {
		dst = &net.IPAddr{IP: a.AsSlice()}
	}
	c.SetDeadline(time.Now().Add(pingTime))
	if _, err := c.WriteTo(msg, dst); err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return int64(len(pingPayload)), 0, err
		}
		m, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil || m.Type != want || !sameHost(from, a) {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && string(e.Data) == string(pingPayload) && (!c.raw || e.ID == id) {
			return int64(len(pingPayload)), int64(len(e.Data)), nil
		}
	}
}

func sameHost(from net.Addr, a netip.Addr) bool {
	var ip net.IP
	switch f := from.(type) {
	case *net.UDPAddr:
		ip = f.IP
	case *net.IPAddr:
		ip = f.IP
	}
	got, ok := netip.AddrFromSlice(ip)
	return ok && got.Unmap() == a
}

var errRoute = errors.New("no route to the guest")

// reply sends the guest an echo reply to its request, as from the host it pinged.
func (g *gate) reply(from netip.Addr, request []byte) error {
	answer := header.ICMPv4(request)
	answer.SetType(header.ICMPv4EchoReply)
	return g.sendICMP(from, answer)
}

// unreachable tells the guest, as its router, that a request goes nowhere: head
// is the request's IP header.
func (g *gate) unreachable(code header.ICMPv4Code, head, request []byte) error {
	said := append(make([]byte, header.ICMPv4MinimumSize), head...)
	said = append(said, request[:min(len(request), header.ICMPv4MinimumErrorPayloadSize)]...)
	answer := header.ICMPv4(said)
	answer.SetType(header.ICMPv4DstUnreachable)
	answer.SetCode(code)
	return g.sendICMP(g.net.Gateway(), answer)
}

// sendICMP sends a message to the guest.
func (g *gate) sendICMP(from netip.Addr, msg header.ICMPv4) error {
	r, terr := g.stack.FindRoute(nicID, tcpip.AddrFrom4(from.As4()), tcpip.AddrFrom4(g.net.Guest().As4()), ipv4Number, false)
	if terr != nil {
		return errRoute
	}
	defer r.Release()
	msg.SetChecksum(0)
	msg.SetChecksum(^checksum.Checksum(msg, 0))
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: int(r.MaxHeaderLength()), Payload: buffer.MakeWithData(msg)})
	defer pkt.DecRef()
	if err := r.WritePacket(stack.NetworkHeaderParams{Protocol: header.ICMPv4ProtocolNumber, TTL: 64}, pkt); err != nil {
		return errRoute
	}
	return nil
}
