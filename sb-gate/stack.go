package main

import (
	"fmt"
	"net/netip"
	"time"

	"sb/lib/manifest"
	"sb/sb-gate/frame"
	"sb/sb-gate/link"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const nicID = 1

// restTime is how long the addresses of a connection rest after its end (RFC
// 9293, 3.6). No old segment can turn up on this wire, so a port of the guest's
// is free again as soon as its connection has ended, whoever ended it.
const restTime = time.Duration(0)

func filter(net manifest.Network) *frame.Filter {
	return &frame.Filter{MTU: net.MTU, GuestMAC: manifest.GuestMAC, GatewayMAC: manifest.GatewayMAC,
		Guest: net.Guest(), Gateway: net.Gateway(), Subnet: net.Subnet()}
}

// openStack makes the network stack on the wire. It answers for every address,
// which is how a dial to any of them comes to the handlers here; it has IPv4
// alone, and one network, the guest's.
func (g *gate) openStack(wire *link.Endpoint) error {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	g.stack = s
	tuneTCP(s)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, g.handleSegment(s))
	s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s, g.handleUDP).HandlePacket)
	s.SetTransportProtocolHandler(icmp.ProtocolNumber4, g.handleICMP)

	// The NIC comes up last: nothing is taken from the guest before everything
	// that judges it stands.
	if err := s.CreateNICWithOptions(nicID, wire, stack.NICOptions{Disabled: true}); err != nil {
		return fmt.Errorf("make the network stack: %s", err)
	}
	gateway := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(g.net.Gateway().As4()), PrefixLen: g.net.Subnet().Bits()}}
	if err := s.AddProtocolAddress(nicID, gateway, stack.AddressProperties{}); err != nil {
		return fmt.Errorf("make the network stack: %s", err)
	}
	if err := s.SetPromiscuousMode(nicID, true); err != nil {
		return fmt.Errorf("make the network stack: %s", err)
	}
	if err := s.SetSpoofing(nicID, true); err != nil {
		return fmt.Errorf("make the network stack: %s", err)
	}
	// Every refused datagram is told of, however many there are: the errors go to
	// the one machine that asked for them.
	s.SetICMPLimit(1e9)
	s.SetRouteTable([]tcpip.Route{{Destination: gateway.AddressWithPrefix.Subnet(), NIC: nicID}})
	return nil
}

// tuneTCP sets what TCP keeps, and for how long.
func tuneTCP(s *stack.Stack) {
	sack := tcpip.TCPSACKEnabled(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	window := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: roomyWindow, Max: roomyWindow}
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &window)
	received := tcpip.TCPReceiveBufferSizeRangeOption(window)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &received)
	rest, half := tcpip.TCPTimeWaitTimeoutOption(restTime), tcpip.TCPLingerTimeoutOption(partTime)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &rest)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &half) // a half that the guest does not close
}

// up lets frames in.
func (g *gate) up() error {
	if err := g.stack.EnableNIC(nicID); err != nil {
		return fmt.Errorf("bring the wire up: %s", err)
	}
	return nil
}

func addrOf(a tcpip.Address) netip.Addr { return netip.AddrFrom4(a.As4()) }

// dialled is the address that a flow of the guest's is for: to the stack, which
// stands in its place, the local one.
func dialled(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
}

var _ stack.GSOEndpoint = (*link.Endpoint)(nil)

const ipv4Number = header.IPv4ProtocolNumber
