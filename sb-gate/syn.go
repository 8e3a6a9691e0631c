package main

import (
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// handleSegment returns the handler of TCP segments that belong to no connection.
// The first one of a connection is judged here, where the wire is read, so that a
// refusal holds nothing and no number of them is in the way of a dial. False: the
// stack answers with a RST, and the guest sees "connection refused" at once.
func (g *gate) handleSegment(s *stack.Stack) func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	roomy := tcp.NewForwarder(s, 0, maxFlows, g.handleTCP)
	small := tcp.NewForwarder(s, smallTaken, maxFlows, g.handleTCP)
	dns := tcp.NewForwarder(s, smallWindow, maxFlows, g.handleDNS)
	gateway := netip.AddrPortFrom(g.net.Gateway(), portDNS)
	return func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		if header.TCP(pkt.TransportHeader().Slice()).Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
			return false
		}
		if dialled(id) == gateway {
			return dns.HandlePacket(id, pkt)
		}
		if _, again := g.flows.dial(id); again {
			return true
		}
		slot, ok := g.admit(id)
		if !ok {
			return false
		}
		forward := small
		if slot.roomy {
			forward = roomy
		}
		if forward.HandlePacket(id, pkt) {
			return true
		}
		g.flows.dialled(id, false) // it was malformed
		g.flows.leave(slot)
		return false
	}
}

// shake completes the guest's handshake; nil: it did not.
func (g *gate) shake(r *tcp.ForwarderRequest, roomy bool) *guestConn {
	id := r.ID()
	late := time.AfterFunc(meetTime, func() { g.giveUp(id) })
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	late.Stop()
	r.Complete(err != nil)
	if err != nil {
		return nil
	}
	return newGuestConn(&wq, ep, roomy)
}

// giveUp ends a handshake that the guest has begun and does not complete.
func (g *gate) giveUp(id stack.TransportEndpointID) {
	if ep := g.stack.FindTransportEndpoint(ipv4.ProtocolNumber, tcp.ProtocolNumber, id, nicID); ep != nil {
		ep.Abort()
	}
}
