package link

import (
	"encoding/binary"
	"testing"
	"time"

	"sb/lib/manifest"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// FuzzStack: whatever frames come one after the other, with an IPv4 header that
// the filter lets pass, the network stack takes them without a panic, connections
// and all. Each frame is a protocol, a length and that many bytes after the IPv4
// header; checksums are not looked at.
func FuzzStack(f *testing.F) {
	segment := func(flags header.TCPFlags, seq, ack uint32, data string) string {
		b := header.TCP(make([]byte, header.TCPMinimumSize))
		b.Encode(&header.TCPFields{SrcPort: 2000, DstPort: 80, SeqNum: seq, AckNum: ack, DataOffset: 20, Flags: flags, WindowSize: 1000})
		return string([]byte{6, byte(len(b) + len(data))}) + string(b) + data
	}
	const syn, ack, fin, rst, urg = header.TCPFlagSyn, header.TCPFlagAck, header.TCPFlagFin, header.TCPFlagRst, header.TCPFlagUrg
	f.Add([]byte(segment(syn, 1, 0, "") + segment(ack, 2, 1, "GET") + segment(ack|fin, 5, 1, "x") + segment(ack, 100, 1, "later")))
	f.Add([]byte(segment(syn|fin, 1, 0, "data") + segment(syn|ack, 1, 0, "") + segment(rst, 1, 0, "") + segment(urg, 9, 9, "!")))
	f.Add([]byte("\x11\x0a\x00\x35\x00\x35\x00\x0a\x00\x00ab" + "\x01\x08\x08\x00\x00\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, in []byte) {
		e, far := endpoint(t)
		s := hostileStack(t, e)
		for len(in) >= 2 {
			n := min(int(in[1]), len(in)-2)
			if _, err := far.Write(ipFrame(e, in[0], in[2:2+n])); err != nil {
				t.Fatal(err)
			}
			in = in[2+n:]
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Microsecond) {
			if n, err := unix.IoctlGetInt(int(far.Fd()), unix.TIOCOUTQ); err != nil || n == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the frames are not read")
			}
		}
		e.Close()
		<-e.ended
		if s.Destroy(); e.panics > 0 {
			t.Errorf("the stack panicked %d times", e.panics)
		}
	})
}

// hostileStack is one that takes every connection and every datagram.
func hostileStack(t *testing.T, e *Endpoint) *stack.Stack {
	s := stack.New(stack.Options{NetworkProtocols: []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4}})
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s, 0, 16, func(r *tcp.ForwarderRequest) {
		var wq waiter.Queue
		ep, err := r.CreateEndpoint(&wq)
		r.Complete(err != nil)
		if err == nil {
			ep.Close()
		}
	}).HandlePacket)
	if err := s.CreateNIC(1, e); err != nil {
		t.Fatal(err)
	}
	s.SetPromiscuousMode(1, true)
	s.SetSpoofing(1, true)
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	return s
}

// ipFrame is a frame of the guest's with the payload of a protocol.
func ipFrame(e *Endpoint, proto byte, payload []byte) []byte {
	b := append([]byte(nil), manifest.GatewayMAC...)
	b = append(b, manifest.GuestMAC...)
	b = binary.BigEndian.AppendUint16(b, 0x0800)
	ip := make([]byte, 20, 20+len(payload))
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(payload)))
	guest := e.filter.Guest.As4()
	copy(ip[12:], guest[:])
	copy(ip[16:], []byte{198, 18, 1, 0})
	binary.BigEndian.PutUint16(ip[10:], ^checksum.Checksum(ip, 0))
	return append(append(b, ip...), payload...)
}
