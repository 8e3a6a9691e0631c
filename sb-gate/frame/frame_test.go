package frame

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"sb/lib/manifest"
	"sb/lib/reason"
)

func filter() *Filter {
	net := manifest.Network{Pool: netip.MustParsePrefix(manifest.DefaultPool), MTU: 1500}
	return &Filter{MTU: 1500, GuestMAC: manifest.GuestMAC, GatewayMAC: manifest.GatewayMAC,
		Guest: net.Guest(), Gateway: net.Gateway(), Subnet: net.Subnet()}
}

// build is a good frame of the guest's, with payload bytes behind a transport header.
func build(f *Filter, proto byte, dst string, transport []byte) []byte {
	b := append([]byte{}, f.GatewayMAC...)
	b = append(b, f.GuestMAC...)
	b = append(b, 8, 0)
	ip := make([]byte, ipLen)
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(ipLen+len(transport)))
	ip[6] = 0x40
	copy(ip[12:], f.Guest.AsSlice())
	copy(ip[16:], netip.MustParseAddr(dst).AsSlice())
	return append(append(b, ip...), transport...)
}

func tcp() []byte { b := make([]byte, tcpLen); b[12] = 5 << 4; return b }
func udp() []byte { b := make([]byte, udpLen); b[5] = udpLen; return b }

func icmp(typ, code byte) []byte { return []byte{typ, code, 0, 0, 0, 0, 0, 0} }

func arp(f *Filter, target netip.Addr) []byte {
	b := bytes.Repeat([]byte{0xff}, 6)
	b = append(b, f.GuestMAC...)
	b = append(b, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(b, f.GuestMAC...)
	b = append(b, f.Guest.AsSlice()...)
	b = append(b, make([]byte, 6)...)
	return append(b, target.AsSlice()...)
}

// change returns frame with bytes from at on replaced.
func change(frame []byte, at int, with ...byte) []byte {
	b := bytes.Clone(frame)
	copy(b[at:], with)
	return b
}

func TestCheck(t *testing.T) {
	f := filter()
	good := build(f, protoTCP, "198.18.1.0", tcp())
	goodARP := arp(f, f.Gateway)
	for _, c := range []struct {
		name  string
		frame []byte
		want  reason.Code
	}{
		{"tcp", good, ""},
		{"udp", build(f, protoUDP, "198.18.0.1", udp()), ""},
		{"icmp", build(f, protoICMP, "192.0.2.1", icmp(8, 0)), ""},
		{"arp", goodARP, ""},
		{"padded", append(bytes.Clone(good), make([]byte, 20)...), ""},
		{"don't fragment off", change(good, 20, 0), ""},

		{"empty", nil, reason.FrameMalformed},
		{"runt", good[:13], reason.FrameMalformed},
		{"header only", good[:14], reason.FrameMalformed},
		{"cut ip header", good[:33], reason.FrameMalformed},
		{"jumbo", append(bytes.Clone(good), make([]byte, 1500)...), reason.FrameMalformed},
		{"other source mac", change(good, 6, 2), reason.FrameSource},
		{"other destination mac", change(good, 0, 2), reason.FrameMalformed},
		{"broadcast mac", change(good, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), reason.FrameMulticast},
		{"ipv6", change(good, 12, 0x86, 0xdd), reason.FrameEtherType},
		{"vlan", change(good, 12, 0x81, 0), reason.FrameEtherType},
		{"802.3 length", change(good, 12, 0, 40), reason.FrameEtherType},
		{"version 6 inside", change(good, 14, 0x65), reason.FrameMalformed},
		{"options", change(good, 14, 0x46), reason.FrameFragment},
		{"more fragments", change(good, 20, 0x20), reason.FrameFragment},
		{"offset", change(good, 20, 0, 1), reason.FrameFragment},
		{"reserved bit", change(good, 20, 0x80), reason.FrameFragment},
		{"total below header", change(good, 16, 0, 19), reason.FrameMalformed},
		{"total past end", change(good, 16, 5, 0), reason.FrameMalformed},
		{"other source address", change(good, 26, 8, 8, 8, 8), reason.FrameSource},
		{"gateway as source", change(good, 26, f.Gateway.AsSlice()...), reason.FrameSource},
		{"to multicast", build(f, protoUDP, "224.0.0.251", udp()), reason.FrameMulticast},
		{"to broadcast", build(f, protoUDP, "255.255.255.255", udp()), reason.FrameMulticast},
		{"to subnet broadcast", build(f, protoUDP, "198.18.0.255", udp()), reason.FrameMulticast},
		{"to itself", build(f, protoTCP, "198.18.0.2", tcp()), reason.InsideTheSubnet},
		{"to loopback", build(f, protoTCP, "127.0.0.1", tcp()), reason.InsideTheSubnet},
		{"to this network", build(f, protoTCP, "0.0.0.0", tcp()), reason.InsideTheSubnet},
		{"sctp", build(f, 132, "198.18.1.0", tcp()), reason.FrameProtocol},
		{"short tcp", build(f, protoTCP, "198.18.1.0", tcp()[:19]), reason.FrameMalformed},
		{"no tcp", build(f, protoTCP, "198.18.1.0", tcp()[:12]), reason.FrameMalformed},
		{"tcp offset low", build(f, protoTCP, "198.18.1.0", change(tcp(), 12, 4<<4)), reason.FrameMalformed},
		{"tcp offset high", build(f, protoTCP, "198.18.1.0", change(tcp(), 12, 6<<4)), reason.FrameMalformed},
		{"short udp", build(f, protoUDP, "198.18.1.0", udp()[:7]), reason.FrameMalformed},
		{"no udp", build(f, protoUDP, "198.18.1.0", udp()[:5]), reason.FrameMalformed},
		{"udp length low", build(f, protoUDP, "198.18.1.0", change(udp(), 5, 7)), reason.FrameMalformed},
		{"udp length high", build(f, protoUDP, "198.18.1.0", change(udp(), 5, 9)), reason.FrameMalformed},
		{"short icmp", build(f, protoICMP, "198.18.1.0", make([]byte, 7)), reason.FrameMalformed},
		{"echo reply", build(f, protoICMP, "198.18.1.0", icmp(0, 0)), reason.ICMPType},
		{"echo with a code", build(f, protoICMP, "198.18.1.0", icmp(8, 1)), reason.ICMPType},
		{"unreachable", build(f, protoICMP, "198.18.1.0", icmp(3, 3)), reason.ICMPType},
		{"redirect", build(f, protoICMP, "198.18.1.0", icmp(5, 1)), reason.ICMPType},
		{"short arp", goodARP[:HeaderLen+27], reason.FrameMalformed},
		{"arp reply", change(goodARP, 20, 0, 2), reason.FrameMalformed},
		{"arp of other hardware", change(goodARP, 14, 0, 6), reason.FrameMalformed},
		{"arp claims gateway", change(goodARP, 28, f.Gateway.AsSlice()...), reason.FrameSource},
		{"arp claims mac", change(goodARP, 22, 2), reason.FrameSource},
		{"arp for another", arp(f, netip.MustParseAddr("198.18.0.9")), reason.InsideTheSubnet},
	} {
		got, why := f.Check(c.frame)
		if why != c.want || (why == "") != (got != nil) {
			t.Errorf("%s: %q (%d bytes), want %q", c.name, why, len(got), c.want)
		}
	}
	if got, _ := f.Check(append(bytes.Clone(good), make([]byte, 20)...)); !bytes.Equal(got, good) {
		t.Errorf("padding was kept: %d bytes, want %d", len(got), len(good))
	}
}
