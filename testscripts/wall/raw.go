package main

import (
	"encoding/binary"
	"net/netip"
	"os"

	"sb/lib/manifest"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// sender writes frames to the wire that no kernel made. A wire that is full is
// waited for, so that each frame comes to the gate.
type sender struct {
	fd    int
	frame []byte
}

var guestIP = netip.MustParseAddr("198.18.0.2")

func newSender(wire *os.File) *sender {
	s := &sender{fd: int(wire.Fd())}
	s.frame = append(s.frame, manifest.GatewayMAC...)
	s.frame = append(s.frame, manifest.GuestMAC...)
	return s
}

// send sends an Ethernet frame of a type.
func (s *sender) send(etherType uint16, payload []byte) error {
	f := binary.BigEndian.AppendUint16(s.frame[:12], etherType)
	f = append(f, payload...)
	s.frame = f[:12]
	for {
		_, err := unix.Write(s.fd, f)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, -1)
		default:
			return err
		}
	}
}

// ip sends an IPv4 packet; the payload's own checksum is at sumAt, and covers a
// pseudo-header but for ICMP.
func (s *sender) ip(proto byte, dst netip.Addr, payload []byte, sumAt int) error {
	p := make([]byte, 20, 20+len(payload))
	p[0], p[8], p[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(p[2:], uint16(20+len(payload)))
	src, to := guestIP.As4(), dst.As4()
	copy(p[12:], src[:])
	copy(p[16:], to[:])
	binary.BigEndian.PutUint16(p[10:], ^checksum.Checksum(p, 0))
	sum := uint16(0)
	if proto != protoICMP {
		sum = checksum.Checksum(p[12:20], uint16(proto))
		sum = checksum.Combine(sum, uint16(len(payload)))
	}
	binary.BigEndian.PutUint16(payload[sumAt:], 0)
	binary.BigEndian.PutUint16(payload[sumAt:], ^checksum.Checksum(payload, sum))
	return s.send(0x0800, append(p, payload...))
}

// Protocol numbers (IANA).
const (
	protoICMP = 1
	protoTCP  = 6
	protoUDP  = 17
)

// syn sends the first segment of a connection.
func (s *sender) syn(from uint16, dst netip.AddrPort) error {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], dst.Port())
	binary.BigEndian.PutUint32(b[4:], 1000)
	b[12], b[13] = 5<<4, 2
	binary.BigEndian.PutUint16(b[14:], 65535)
	return s.ip(protoTCP, dst.Addr(), b, 16)
}

// udp sends a datagram.
func (s *sender) udp(from uint16, dst netip.AddrPort, payload []byte) error {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], dst.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	return s.ip(protoUDP, dst.Addr(), append(b, payload...), 6)
}

// ping sends an echo request.
func (s *sender) ping(dst netip.Addr) error {
	return s.ip(protoICMP, dst, []byte{8, 0, 0, 0, 0, 1, 0, 1}, 2)
}

// drain reads and forgets what the gate sends, until the wire ends.
func drain(wire *os.File) {
	buf := make([]byte, 2048)
	for {
		if _, err := wire.Read(buf); err != nil {
			return
		}
	}
}

// address is one of a range: the i-th after base.
func address(base string, i int) netip.Addr {
	a := netip.MustParseAddr(base).As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(i))
	return netip.AddrFrom4(a)
}
