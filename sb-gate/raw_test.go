//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"sb/lib/manifest"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// send puts a frame on the wire as it is, past the guest's own stack.
func (s *sandbox) send(frame []byte) {
	s.t.Helper()
	if _, err := s.guest.wire.Write(frame); err != nil {
		s.t.Fatal(err)
	}
}

// ether is a frame of the guest's to the gateway.
func ether(typ uint16, payload []byte) []byte {
	b := append([]byte(nil), manifest.GatewayMAC...)
	b = append(b, manifest.GuestMAC...)
	return append(binary.BigEndian.AppendUint16(b, typ), payload...)
}

// packet is an IPv4 packet of the guest's.
func (s *sandbox) packet(proto byte, to netip.Addr, payload []byte) []byte {
	ip := header.IPv4(make([]byte, header.IPv4MinimumSize))
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(ip) + len(payload)), TTL: 64, Protocol: proto,
		SrcAddr: tcpip.AddrFrom4(s.guest.net.Guest().As4()), DstAddr: tcpip.AddrFrom4(to.As4())})
	ip.SetChecksum(^ip.CalculateChecksum())
	return append(ip, payload...)
}

// syn is the frame that begins a connection.
func (s *sandbox) syn(from uint16, to netip.AddrPort) []byte {
	return s.tcp(from, to, header.TCPFlagSyn, 7, 0)
}

// tcp is a frame with a segment of no data.
func (s *sandbox) tcp(from uint16, to netip.AddrPort, flags header.TCPFlags, seq, ack uint32) []byte {
	seg := header.TCP(make([]byte, header.TCPMinimumSize))
	seg.Encode(&header.TCPFields{SrcPort: from, DstPort: to.Port(), SeqNum: seq, AckNum: ack, DataOffset: header.TCPMinimumSize, Flags: flags, WindowSize: 65535})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, tcpip.AddrFrom4(s.guest.net.Guest().As4()), tcpip.AddrFrom4(to.Addr().As4()), uint16(len(seg)))
	seg.SetChecksum(^seg.CalculateChecksum(sum))
	return ether(0x0800, s.packet(6, to.Addr(), seg))
}

// echoRequest is a ping.
func echoRequest(id, seq uint16, payload []byte) []byte {
	b := append(make([]byte, header.ICMPv4MinimumSize), payload...)
	h := header.ICMPv4(b)
	h.SetType(header.ICMPv4Echo)
	h.SetIdent(id)
	h.SetSequence(seq)
	h.SetChecksum(^checksum.Checksum(b, 0))
	return b
}

// tcpTable says whether this host has a connection to an address in a state, as
// /proc/net/tcp writes it.
func tcpTable(at netip.AddrPort, state string) bool {
	table, _ := os.ReadFile("/proc/net/tcp")
	a := at.Addr().As4()
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X %s", a[3], a[2], a[1], a[0], at.Port(), state)
	return strings.Contains(string(table), want)
}
