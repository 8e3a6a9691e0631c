package main

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"sb/lib/manifest"
	"sb/sb-gate/frame"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// The frames of a proof: what a guest would send, and what it would hear.

// askedFrom is the guest's port.
const askedFrom = 40000

// proofQuestion is a DNS question for the address of a name (RFC 1035).
func proofQuestion(net manifest.Network, name string) []byte {
	q := []byte("\x5b\x5b\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00") // a number; recursion desired; one question
	for label := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	q = append(q, 0, 0, 1, 0, 1) // the root; A, IN
	u := header.UDP(make([]byte, header.UDPMinimumSize, header.UDPMinimumSize+len(q)))
	u.Encode(&header.UDPFields{SrcPort: askedFrom, DstPort: portDNS, Length: uint16(len(u) + len(q))})
	return guestFrame(net, net.Gateway(), header.UDPProtocolNumber, append(u, q...))
}

// proofSYN begins a connection.
func proofSYN(net manifest.Network, to netip.AddrPort, n uint16) []byte {
	t := header.TCP(make([]byte, header.TCPMinimumSize))
	t.Encode(&header.TCPFields{SrcPort: askedFrom + n, DstPort: to.Port(), SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 65535})
	return guestFrame(net, to.Addr(), header.TCPProtocolNumber, t)
}

// guestFrame is a frame of the guest's. Its transport checksum is left out: the
// wire has no noise, and the gate does not look at it.
func guestFrame(net manifest.Network, to netip.Addr, proto tcpip.TransportProtocolNumber, payload []byte) []byte {
	f := make([]byte, frame.HeaderLen+header.IPv4MinimumSize, frame.HeaderLen+header.IPv4MinimumSize+len(payload))
	header.Ethernet(f).Encode(&header.EthernetFields{SrcAddr: tcpip.LinkAddress(manifest.GuestMAC), DstAddr: tcpip.LinkAddress(manifest.GatewayMAC), Type: header.IPv4ProtocolNumber})
	ip := header.IPv4(f[frame.HeaderLen:])
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(header.IPv4MinimumSize + len(payload)), TTL: 64, Protocol: uint8(proto),
		SrcAddr: tcpip.AddrFrom4(net.Guest().As4()), DstAddr: tcpip.AddrFrom4(to.As4())})
	ip.SetChecksum(^checksum.Checksum(ip, 0))
	return append(f, payload...)
}

// proofAnswer reads a frame of the gate's: from where it answers, and whether that
// is a refusal. ok: it is an answer.
func proofAnswer(f []byte) (from netip.AddrPort, refused, ok bool) {
	const dnsHeader, rcode, noSuchName, refusedIt = 12, 0x0f, 3, 5
	if len(f) < frame.HeaderLen+header.IPv4MinimumSize || header.Ethernet(f).Type() != header.IPv4ProtocolNumber {
		return from, false, false
	}
	ip := header.IPv4(f[frame.HeaderLen:])
	b := f[frame.HeaderLen+header.IPv4MinimumSize:]
	switch {
	case ip.TransportProtocol() == header.TCPProtocolNumber && len(b) >= header.TCPMinimumSize:
		refused = header.TCP(b).Flags().Contains(header.TCPFlagRst)
	case ip.TransportProtocol() == header.UDPProtocolNumber && len(b) >= header.UDPMinimumSize+dnsHeader:
		dns := b[header.UDPMinimumSize:]
		code, answers := dns[3]&rcode, binary.BigEndian.Uint16(dns[6:])
		refused = answers == 0 && (code == noSuchName || code == refusedIt)
	default:
		return from, false, false
	}
	// Both headers begin with the port that it comes from.
	return netip.AddrPortFrom(addrOf(ip.SourceAddress()), binary.BigEndian.Uint16(b)), refused, true
}
