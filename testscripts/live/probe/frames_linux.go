package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// Where hostile frames are for, and from.
var (
	gatewayMAC = []byte{0x5a, 0x94, 0xef, 0xe4, 0x0c, 0x01}
	guestMAC   = []byte{0x5a, 0x94, 0xef, 0xe4, 0x0c, 0x02}
	guest      = netip.MustParseAddr("198.18.0.2")
)

// frames DEVICE ALLOWED NEVER: sends by a packet socket what no stack would send,
// to the address of an allowed name and to one that nobody may reach. The kernel
// of the guest has no say in it.
func frames(device, allowed, never string) string {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return err.Error()
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	sent, failed := 0, 0
	for _, f := range hostile(netip.MustParseAddr(allowed), netip.MustParseAddr(never)) {
		if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index, Halen: 6}); err != nil {
			failed++
		} else {
			sent++
		}
	}
	return fmt.Sprintf("sent %d, %d not taken", sent, failed)
}

// hostile is every kind of frame that should not lead out, and some that may.
func hostile(allowed, never netip.Addr) (all [][]byte) {
	query := []byte("\x01\x02\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06secret\x07example\x03org\x00\x00\x01\x00\x01")
	for n := 14; n < 60; n++ { // runts
		all = append(all, ether(gatewayMAC, guestMAC, 0x0800, make([]byte, n-14)))
	}
	for typ := 0; typ < 0x10000; typ += 0x55 {
		all = append(all, ether(gatewayMAC, guestMAC, uint16(typ), ip(17, guest, never, udp(53, query))[14:]))
	}
	for _, typ := range []uint16{0x86dd, 0x8100, 0x88a8, 0x8847, 0x888e, 0x88cc, 0x8863, 0x8864, 0x0842} {
		all = append(all, ether(gatewayMAC, guestMAC, typ, make([]byte, 80)))
	}
	for _, to := range []netip.Addr{allowed, never} {
		for proto := range 256 {
			all = append(all, ip(byte(proto), guest, to, make([]byte, 64)))
		}
		for flags := range 256 {
			all = append(all, ip(6, guest, to, tcp(uint16(20000+flags), 80, byte(flags), []byte("GET / HTTP/1.1\r\n\r\n"))))
		}
		for typ := range 256 {
			all = append(all, ip(1, guest, to, icmp(byte(typ), []byte("the guest's own secret payload of any length"))))
		}
		for _, from := range []string{"45.67.0.10", "10.99.0.1", "198.18.0.1", "198.18.0.3", "127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1"} {
			all = append(all, ip(6, netip.MustParseAddr(from), to, tcp(21000, 80, 2, nil)), ip(17, netip.MustParseAddr(from), to, udp(53, query)))
		}
		for _, port := range []uint16{53, 67, 123, 443, 7777} {
			all = append(all, ip(17, guest, to, udp(port, query)))
		}
		whole := ip(17, guest, to, udp(7777, query))
		for _, part := range []uint16{0x2000, 0x2001, 0x0001, 0x1fff, 0x8000} { // fragments; the reserved bit
			f := append([]byte(nil), whole...)
			binary.BigEndian.PutUint16(f[20:], part)
			all = append(all, sum(f))
		}
		for ihl := range 16 { // lengths that lie, options
			f := append([]byte(nil), whole...)
			f[14] = 0x40 | byte(ihl)
			all = append(all, sum(f))
		}
		for _, total := range []uint16{0, 19, 20, 27, 1500, 65535} {
			f := append([]byte(nil), whole...)
			binary.BigEndian.PutUint16(f[16:], total)
			all = append(all, sum(f))
		}
		other := append([]byte(nil), whole...)
		copy(other[6:], []byte{2, 0, 0, 0, 0, 9}) // another machine's link address
		all = append(all, other, ether([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, guestMAC, 0x0800, whole[14:]))
	}
	for _, to := range []string{"198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.0.255", "224.0.0.251", "255.255.255.255", "127.0.0.1", "10.99.0.1", "45.67.0.53", "169.254.169.254"} {
		a := netip.MustParseAddr(to)
		all = append(all, ip(6, guest, a, tcp(22000, 80, 2, nil)), ip(17, guest, a, udp(67, query)), ip(17, guest, a, udp(5353, query)))
		arp := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, guestMAC...)
		arp = append(append(arp, a.AsSlice()...), make([]byte, 6)...)
		all = append(all, ether(gatewayMAC, guestMAC, 0x0806, append(arp, a.AsSlice()...)))
	}
	return all
}

func ether(dst, src []byte, typ uint16, payload []byte) []byte {
	f := append(append([]byte(nil), dst...), src...)
	return append(binary.BigEndian.AppendUint16(f, typ), payload...)
}

// ip is a frame with an IPv4 packet.
func ip(proto byte, src, dst netip.Addr, payload []byte) []byte {
	h := make([]byte, 20)
	h[0], h[8], h[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	copy(h[12:], src.AsSlice())
	copy(h[16:], dst.AsSlice())
	return sum(ether(gatewayMAC, guestMAC, 0x0800, append(h, payload...)))
}

// sum makes the checksum of a frame's IP header.
func sum(f []byte) []byte {
	h := f[14:34]
	binary.BigEndian.PutUint16(h[10:], 0)
	binary.BigEndian.PutUint16(h[10:], ^checksum.Checksum(h, 0))
	return f
}

func udp(port uint16, payload []byte) []byte {
	h := binary.BigEndian.AppendUint16([]byte{0x75, 0x30}, port)
	h = binary.BigEndian.AppendUint16(h, uint16(8+len(payload)))
	return append(append(h, 0, 0), payload...)
}

func tcp(from, port uint16, flags byte, payload []byte) []byte {
	h := make([]byte, 20)
	binary.BigEndian.PutUint16(h, from)
	binary.BigEndian.PutUint16(h[2:], port)
	h[7], h[12], h[13], h[14] = 1, 5<<4, flags, 0xff
	return append(h, payload...)
}

func icmp(typ byte, payload []byte) []byte {
	b := append([]byte{typ, 0, 0, 0, 0, 7, 0, 1}, payload...)
	binary.BigEndian.PutUint16(b[2:], ^checksum.Checksum(b, 0))
	return b
}
