// Package frame decides which Ethernet frames of the guest reach the network
// stack: those of one guest at one address that speak ARP to the gateway or
// plain IPv4 with TCP, UDP or ICMP. Everything else is dropped here, before any
// larger program parses it.
package frame

import (
	"encoding/binary"
	"net"
	"net/netip"

	"sb/lib/reason"
)

// Sizes in bytes: IEEE 802.3, RFC 826 (for Ethernet and IPv4), RFC 791, RFC
// 9293, RFC 768, RFC 792.
const (
	HeaderLen = 14
	arpLen    = 28
	ipLen     = 20
	tcpLen    = 20
	udpLen    = 8
	icmpLen   = 8
)

// EtherTypes and protocol numbers (IANA).
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	protoICMP = 1
	icmpEcho  = 8
	protoTCP  = 6
	protoUDP  = 17
)

// Filter is what a frame must agree with.
type Filter struct {
	MTU                  int // of the IP packet
	GuestMAC, GatewayMAC net.HardwareAddr
	Guest, Gateway       netip.Addr // IPv4
	Subnet               netip.Prefix
}

// Check returns the part of frame that counts, its Ethernet padding cut off, or
// the reason why the frame is dropped.
func (f *Filter) Check(frame []byte) ([]byte, reason.Code) {
	if len(frame) < HeaderLen || len(frame) > f.MTU+HeaderLen {
		return nil, reason.FrameMalformed
	}
	if string(frame[6:12]) != string(f.GuestMAC) {
		return nil, reason.FrameSource
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case EtherARP:
		return f.arp(frame)
	case EtherIPv4:
		return f.ipv4(frame)
	}
	return nil, reason.FrameEtherType
}

// arp lets through the one question that there is to ask: who has the gateway's
// address. The guest's own place on the wire is fixed, so nothing it says of
// addresses is listened to.
func (f *Filter) arp(frame []byte) ([]byte, reason.Code) {
	if len(frame) < HeaderLen+arpLen {
		return nil, reason.FrameMalformed
	}
	a := frame[HeaderLen : HeaderLen+arpLen]
	// Hardware type 1, protocol 0x0800, lengths 6 and 4, operation 1 (request).
	if string(a[:8]) != "\x00\x01\x08\x00\x06\x04\x00\x01" {
		return nil, reason.FrameMalformed
	}
	if string(a[8:14]) != string(f.GuestMAC) || addr4(a[14:18]) != f.Guest {
		return nil, reason.FrameSource
	}
	if addr4(a[24:28]) != f.Gateway {
		return nil, reason.InsideTheSubnet
	}
	return frame[:HeaderLen+arpLen], ""
}

func (f *Filter) ipv4(frame []byte) ([]byte, reason.Code) {
	ip := frame[HeaderLen:]
	if len(ip) < ipLen || ip[0]>>4 != 4 {
		return nil, reason.FrameMalformed
	}
	if ip[0]&15 != ipLen/4 || binary.BigEndian.Uint16(ip[6:])&0xbfff != 0 {
		// Options; more fragments, an offset or the reserved bit: only DF may be set.
		return nil, reason.FrameFragment
	}
	total := int(binary.BigEndian.Uint16(ip[2:]))
	if total < ipLen || total > len(ip) {
		return nil, reason.FrameMalformed
	}
	ip = ip[:total]
	if addr4(ip[12:16]) != f.Guest {
		return nil, reason.FrameSource
	}
	if why := f.destination(frame, addr4(ip[16:20])); why != "" {
		return nil, why
	}
	if why := transport(ip[9], ip[ipLen:]); why != "" {
		return nil, why
	}
	return frame[:HeaderLen+total], ""
}

// destination refuses what is for everybody, for the guest itself or for a
// place that no packet on a wire goes to.
func (f *Filter) destination(frame []byte, dst netip.Addr) reason.Code {
	last := f.Subnet.Masked().Addr().As4()
	last[3] = 0xff // the subnet is a /24
	switch {
	case dst.IsMulticast(), dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}), dst == netip.AddrFrom4(last), frame[0]&1 != 0:
		return reason.FrameMulticast
	case string(frame[:6]) != string(f.GatewayMAC):
		return reason.FrameMalformed
	case dst == f.Guest, dst.IsLoopback(), dst.As4()[0] == 0:
		return reason.InsideTheSubnet
	}
	return ""
}

// transport checks the lengths in the header that follows; its checksum is left
// to the stack.
func transport(proto byte, b []byte) reason.Code {
	switch proto {
	case protoTCP:
		if len(b) < tcpLen {
			return reason.FrameMalformed
		}
		if off := int(b[12]>>4) * 4; off < tcpLen || off > len(b) {
			return reason.FrameMalformed
		}
	case protoUDP:
		if len(b) < udpLen {
			return reason.FrameMalformed
		}
		if n := int(binary.BigEndian.Uint16(b[4:])); n < udpLen || n > len(b) {
			return reason.FrameMalformed
		}
	case protoICMP:
		if len(b) < icmpLen {
			return reason.FrameMalformed
		}
		if b[0] != icmpEcho || b[1] != 0 {
			return reason.ICMPType // errors and redirects of the guest's own making
		}
	default:
		return reason.FrameProtocol
	}
	return ""
}

func addr4(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
