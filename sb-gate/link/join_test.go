package link

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/sb-gate/frame"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const options = "\x01\x01\x08\x0a\x00\x00\x00\x07\x00\x00\x00\x09" // two NOPs and a timestamp

// segment is a frame of the guest's with TCP data.
func segment(seq uint32, flags header.TCPFlags, data []byte) []byte {
	b := make([]byte, tcpAt+header.TCPMinimumSize+len(options), 2000)
	header.Ethernet(b).Encode(&header.EthernetFields{SrcAddr: tcpip.LinkAddress(manifest.GuestMAC), DstAddr: tcpip.LinkAddress(manifest.GatewayMAC), Type: header.IPv4ProtocolNumber})
	ip, tcp := header.IPv4(b[ipAt:]), header.TCP(b[tcpAt:])
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(b) - ipAt + len(data)), ID: uint16(seq), Flags: header.IPv4FlagDontFragment, TTL: 64, Protocol: uint8(header.TCPProtocolNumber),
		SrcAddr: tcpip.AddrFrom4([4]byte{198, 18, 0, 2}), DstAddr: tcpip.AddrFrom4([4]byte{198, 18, 1, 7})})
	ip.SetChecksum(^ip.CalculateChecksum())
	tcp.Encode(&header.TCPFields{SrcPort: 40000, DstPort: 443, SeqNum: seq, AckNum: 5, DataOffset: uint8(len(b) - tcpAt), Flags: flags, WindowSize: 500})
	copy(tcp[header.TCPMinimumSize:], options)
	return append(b, data...)
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// whole is what a run became.
func (r *run) whole() []byte {
	b := r.packet()
	return b.Flatten()
}

// TestJoin: segments that follow each other are one; the last of them may be
// shorter, and PSH ends it.
func TestJoin(t *testing.T) {
	data := noise(3300)
	var r run
	r.begin(placed(segment(100, header.TCPFlagAck, data[:1000])))
	for at, flags := range []header.TCPFlags{header.TCPFlagAck, header.TCPFlagAck, header.TCPFlagAck | header.TCPFlagPsh} {
		from := 1000 * (at + 1)
		if !r.join(segment(100+uint32(from), flags, data[from:min(from+1000, len(data))])) {
			t.Fatalf("segment at %d was not joined", from)
		}
	}
	got := r.whole()
	want := segment(100, header.TCPFlagAck|header.TCPFlagPsh, data)
	copy(want[ipAt+10:ipAt+12], got[ipAt+10:ipAt+12]) // the checksum, which is not made
	if !bytes.Equal(got, want) {
		t.Errorf("joined to %x, want %x", got[:80], want[:80])
	}
	if r.join(segment(100+3300, header.TCPFlagAck, data[:100])) {
		t.Error("another was joined after PSH")
	}
	// At most what the length of a packet can say.
	n := 0
	for r.begin(placed(segment(0, header.TCPFlagAck, data[:1000]))); r.join(segment(uint32(1000*(n+1)), header.TCPFlagAck, data[:1000])); n++ {
	}
	if n != 64 || int(header.IPv4(r.whole()[ipAt:]).TotalLength()) != r.size-ipAt {
		t.Errorf("%d were joined, %d bytes", n, r.size)
	}
}

// What differs in anything that the receiver would see is not joined.
func TestJoinDiffers(t *testing.T) {
	data := noise(1000)
	first := func() []byte { return segment(100, header.TCPFlagAck, data) }
	second := func(change func(f []byte)) []byte {
		f := segment(1100, header.TCPFlagAck, data)
		change(f)
		return f
	}
	at := func(i int) func([]byte) { return func(f []byte) { f[i] ^= 4 } }
	for name, c := range map[string]struct {
		second []byte
		joins  bool
	}{
		"alike":              {second(func([]byte) {}), true},
		"packet's number":    {second(at(ipAt + 5)), true},
		"checksums":          {second(func(f []byte) { f[ipAt+10]++; f[tcpAt+16]++ }), true},
		"PSH":                {second(func(f []byte) { f[tcpAt+13] |= 8 }), true},
		"shorter":            {segment(1100, header.TCPFlagAck, data[:999]), true},
		"longer":             {segment(1100, header.TCPFlagAck, append(data, 1)), false},
		"no data":            {segment(1100, header.TCPFlagAck, nil), false},
		"traffic class":      {second(at(ipAt + 1)), false},
		"may be fragmented":  {second(func(f []byte) { f[ipAt+6] = 0 }), false},
		"TTL":                {second(at(ipAt + 8)), false},
		"protocol":           {second(func(f []byte) { f[ipAt+9] = 17 }), false},
		"destination":        {second(at(ipAt + 19)), false},
		"source port":        {second(at(tcpAt + 1)), false},
		"destination port":   {second(at(tcpAt + 3)), false},
		"earlier":            {second(func(f []byte) { binary.BigEndian.PutUint32(f[tcpAt+4:], 1099) }), false},
		"later":              {second(func(f []byte) { binary.BigEndian.PutUint32(f[tcpAt+4:], 1101) }), false},
		"acknowledgement":    {second(at(tcpAt + 11)), false},
		"reserved bits":      {second(func(f []byte) { f[tcpAt+12] |= 2 }), false},
		"FIN":                {second(func(f []byte) { f[tcpAt+13] |= 1 }), false},
		"SYN":                {second(func(f []byte) { f[tcpAt+13] |= 2 }), false},
		"RST":                {second(func(f []byte) { f[tcpAt+13] |= 4 }), false},
		"URG":                {second(func(f []byte) { f[tcpAt+13] |= 32 }), false},
		"no ACK":             {second(func(f []byte) { f[tcpAt+13] = 0 }), false},
		"window":             {second(at(tcpAt + 15)), false},
		"urgent pointer":     {second(at(tcpAt + 19)), false},
		"timestamp":          {second(at(tcpAt + 20 + 7)), false},
		"size of the header": {second(func(f []byte) { f[tcpAt+12] -= 16 }), false},
		"ARP":                {second(func(f []byte) { f[13] = 6 }), false},
	} {
		var r run
		r.begin(placed(first()))
		if got := r.join(c.second); got != c.joins {
			t.Errorf("%s: joined %v", name, got)
		}
		if want := len(first()); !c.joins && (r.size != want || !bytes.Equal(r.whole(), first())) {
			t.Errorf("%s: what stands is not the first", name)
		}
	}
	for name, f := range map[string][]byte{"with FIN": segment(100, header.TCPFlagAck|header.TCPFlagFin, data), "with PSH": segment(100, header.TCPFlagAck|header.TCPFlagPsh, data)} {
		var r run
		if r.begin(placed(f)); r.join(second(func([]byte) {})) {
			t.Errorf("the next was joined to one %s", name)
		}
	}
}

// FuzzJoin: whatever the guest makes of two frames, if they are let in and joined,
// the stack sees one packet with the data of both, in order, and headers that are
// right for either.
func FuzzJoin(f *testing.F) {
	f.Add(uint16(0), byte(0), uint16(0), byte(0), []byte("more"))
	f.Add(uint16(tcpAt+12), byte(0x10), uint16(tcpAt+13), byte(8), []byte(""))
	f.Add(uint16(ipAt+3), byte(1), uint16(ipAt+2), byte(1), []byte("more"))
	filter := testFilter(1500)
	f.Fuzz(func(t *testing.T, at1 uint16, x1 byte, at2 uint16, x2 byte, data []byte) {
		first := segment(100, header.TCPFlagAck, []byte("begin"))
		second := segment(105, header.TCPFlagAck, data[:min(len(data), 1400)])
		first[int(at1)%len(first)] ^= x1
		second[int(at2)%len(second)] ^= x2
		a, why1 := filter.Check(first)
		b, why2 := filter.Check(second)
		if why1 != "" || why2 != "" {
			return
		}
		aWas, bWas := bytes.Clone(a), bytes.Clone(b)
		var r run
		r.begin(placed(a))
		joined := r.join(b)
		got := r.whole()
		if !joined {
			if !bytes.Equal(got, aWas) {
				t.Fatalf("not joined, and changed: %x, was %x", got, aWas)
			}
			return
		}
		if _, why := testFilter(65535).Check(got); why != "" {
			t.Fatalf("what was joined is not let in: %s", why)
		}
		payload := func(f []byte) []byte { return f[tcpAt+int(header.TCP(f[tcpAt:]).DataOffset()):] }
		if want := append(bytes.Clone(payload(aWas)), payload(bWas)...); !bytes.Equal(payload(got), want) {
			t.Fatalf("joined to %q, want %q", payload(got), want)
		}
		tcp1, tcp2 := header.TCP(aWas[tcpAt:]), header.TCP(bWas[tcpAt:])
		if tcp2.SequenceNumber() != tcp1.SequenceNumber()+uint32(len(payload(aWas))) || tcp1.SourcePort() != tcp2.SourcePort() || tcp1.DestinationPort() != tcp2.DestinationPort() ||
			header.IPv4(aWas[ipAt:]).DestinationAddress() != header.IPv4(bWas[ipAt:]).DestinationAddress() {
			t.Fatal("they are not of one flow, or do not follow each other")
		}
	})
}

// taker is the stack's place.
type taker struct{ got chan []byte }

func (d taker) DeliverNetworkPacket(_ tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	d.got <- bytes.Join(pkt.AsSlices(), nil)
}

func (taker) DeliverLinkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) {}

// TestReceive: every byte that is let in comes to the stack, in order, joined or
// not; what is not let in is told.
func TestReceive(t *testing.T) {
	e, far := endpoint(t)
	told := make(chan reason.Code, 10)
	e.dropped = func(why reason.Code) { told <- why }
	const total = 300
	data := noise(total * 700)
	d := taker{make(chan []byte, total)}
	e.Attach(d)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		seq := 0
		for i := range total {
			if i == 100 {
				far.Write(nil)
				far.Write(make([]byte, 1500+frame.HeaderLen+1))
			}
			flags := header.TCPFlags(header.TCPFlagAck)
			if i%50 == 49 {
				flags |= header.TCPFlagPsh
			}
			write(far, segment(uint32(seq), flags, data[seq:seq+700]))
			seq += 700
		}
	}()
	var got []byte
	packets := 0
	for late := time.After(20 * time.Second); len(got) < len(data); packets++ {
		select {
		case p := <-d.got:
			if seq := header.TCP(p[tcpAt:]).SequenceNumber(); int(seq) != len(got) {
				t.Fatalf("packet %d begins at %d, want %d", packets, seq, len(got))
			}
			got = append(got, p[tcpAt+header.TCPMinimumSize+len(options):]...)
		case <-late:
			t.Fatalf("%d bytes of %d came", len(got), len(data))
		}
	}
	<-sent
	if !bytes.Equal(got, data) {
		t.Error("the bytes differ")
	}
	for range 2 {
		if why := <-told; why != reason.FrameMalformed {
			t.Errorf("dropped: %s", why)
		}
	}
	t.Logf("%d segments came as %d packets", total, packets)
}

func write(far *os.File, frame []byte) {
	for {
		if _, err := unix.Write(int(far.Fd()), frame); err != unix.EAGAIN && err != unix.ENOBUFS {
			return
		}
		p := []unix.PollFd{{Fd: int32(far.Fd()), Events: unix.POLLOUT}}
		unix.Poll(p, 1000)
	}
}

// TestCut: a large segment, in pieces of any sizes, leaves as frames that fit,
// whose checksums are right.
func TestCut(t *testing.T) {
	e, far := endpoint(t)
	for _, size := range []int{0, 1, 1447, 1448, 1449, 20000, 64999} {
		data := noise(size)
		var payload buffer.Buffer
		for left := data; len(left) > 0; {
			n := min(len(left), 1+rand.IntN(1+size/7))
			payload.Append(buffer.NewViewWithData(left[:n]))
			left = left[n:]
		}
		pkt := packetOf(payload, size)
		var list stack.PacketBufferList
		list.PushBack(pkt)
		done := make(chan struct{})
		go func() { e.WritePackets(list); close(done) }()
		var got []byte
		for last := false; !last; {
			f := make([]byte, 3000)
			n, err := read(far, f)
			if err != nil {
				t.Fatalf("%d bytes: after %d: %v", size, len(got), err)
			}
			f = f[:n]
			ip := header.IPv4(f[ipAt:])
			tcp := header.TCP(f[tcpAt:])
			part := f[tcpAt+int(tcp.DataOffset()):]
			last = len(got)+len(part) == size
			if len(f) > e.filter.MTU+frame.HeaderLen || !ip.IsChecksumValid() || int(ip.TotalLength()) != len(f)-ipAt ||
				!tcp.IsChecksumValid(ip.SourceAddress(), ip.DestinationAddress(), checksum.Checksum(part, 0), uint16(len(part))) {
				t.Fatalf("%d bytes: a bad frame of %d: %x", size, len(f), f[:tcpAt+20])
			}
			if int(tcp.SequenceNumber()) != 7+len(got) || tcp.Flags().Contains(header.TCPFlagFin|header.TCPFlagPsh) != last {
				t.Fatalf("%d bytes: at %d: sequence number %d, flags %v", size, len(got), tcp.SequenceNumber(), tcp.Flags())
			}
			got = append(got, part...)
		}
		<-done
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes: they differ", size)
		}
	}
}

func read(far *os.File, b []byte) (int, error) {
	for end := time.Now().Add(10 * time.Second); ; {
		n, err := unix.Read(int(far.Fd()), b)
		if err != unix.EAGAIN || time.Now().After(end) {
			return n, err
		}
		unix.Poll([]unix.PollFd{{Fd: int32(far.Fd()), Events: unix.POLLIN}}, 1000)
	}
}

// packetOf is what the stack hands over to be cut.
func packetOf(payload buffer.Buffer, size int) *stack.PacketBuffer {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: maxHead, Payload: payload})
	tcp := header.TCP(pkt.TransportHeader().Push(header.TCPMinimumSize + len(options)))
	tcp.Encode(&header.TCPFields{SrcPort: 443, DstPort: 40000, SeqNum: 7, AckNum: 9, DataOffset: uint8(len(tcp)), Flags: header.TCPFlagAck | header.TCPFlagPsh | header.TCPFlagFin, WindowSize: 500})
	copy(tcp[header.TCPMinimumSize:], options)
	ip := header.IPv4(pkt.NetworkHeader().Push(header.IPv4MinimumSize))
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(ip) + len(tcp) + size), TTL: 64, Protocol: uint8(header.TCPProtocolNumber),
		SrcAddr: tcpip.AddrFrom4([4]byte{198, 18, 1, 7}), DstAddr: tcpip.AddrFrom4([4]byte{198, 18, 0, 2})})
	header.Ethernet(pkt.LinkHeader().Push(frame.HeaderLen)).Encode(&header.EthernetFields{Type: header.IPv4ProtocolNumber})
	pkt.GSOOptions = stack.GSO{Type: stack.GSOTCPv4, NeedsCsum: true, MSS: 1448}
	return pkt
}

// placed is a frame in a place of its own.
func placed(f []byte) ([]byte, **buffer.View) {
	v := buffer.NewViewWithData(f)
	return v.AsSlice(), &v
}
