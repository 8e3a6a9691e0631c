package link

import (
	"encoding/binary"

	"sb/sb-gate/frame"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// maxJoined is the size of the largest frame that segments are joined to. The
// stack keeps memory of that size to be used again; and IPv4 can say its length.
const maxJoined = buffer.MaxChunkSize

// run is segments that came one after the other and are one to the stack (GRO):
// of one flow, each beginning where the one before ends, and otherwise alike. The
// filter has let all of them through.
type run struct {
	parts [][]byte      // the first frame, then the payloads of the others
	place **buffer.View // where the first was read to
	size  int           // of all of it
	each  int           // bytes of payload in every segment but the last; 0: not known
	next  uint32        // the sequence number that goes on with it
	more  bool          // another may be joined
}

const (
	ipAt  = frame.HeaderLen
	tcpAt = ipAt + header.IPv4MinimumSize
)

// dataAt is where the payload begins of a frame that may be joined: one with TCP
// data and no flags but ACK and PSH; 0 for another.
func dataAt(f []byte) int {
	if binary.BigEndian.Uint16(f[12:]) != frame.EtherIPv4 || header.IPv4(f[ipAt:]).Protocol() != uint8(header.TCPProtocolNumber) {
		return 0
	}
	tcp := header.TCP(f[tcpAt:])
	at := tcpAt + int(tcp.DataOffset())
	if tcp.Flags()&^header.TCPFlagPsh != header.TCPFlagAck || at == len(f) {
		return 0
	}
	return at
}

// begin makes f, which was read to place, a run of its own.
func (r *run) begin(f []byte, place **buffer.View) {
	r.parts, r.place, r.size, r.more = append(r.parts[:0], f), place, len(f), false
	r.each = 0
	if at := dataAt(f); at > 0 {
		tcp := header.TCP(f[tcpAt:])
		r.each = len(f) - at
		r.next = tcp.SequenceNumber() + uint32(r.each)
		r.more = tcp.Flags()&header.TCPFlagPsh == 0
	}
}

// join adds f to the run if it goes on with it.
func (r *run) join(f []byte) bool {
	if !r.more {
		return false
	}
	at := dataAt(f)
	n := len(f) - at
	if at == 0 || n > r.each || r.size+n > maxJoined || !alike(r.parts[0], f, at) {
		return false
	}
	tcp := header.TCP(f[tcpAt:])
	if tcp.SequenceNumber() != r.next {
		return false
	}
	r.parts = append(r.parts, f[at:])
	r.size += n
	r.next += uint32(n)
	if tcp.Flags()&header.TCPFlagPsh != 0 {
		header.TCP(r.parts[0][tcpAt:]).SetFlags(uint8(tcp.Flags()))
		r.more = false
	}
	r.more = r.more && n == r.each
	return true
}

// end makes it empty.
func (r *run) end() {
	clear(r.parts)
	r.parts, r.place, r.more = r.parts[:0], nil, false
}

// alike says whether two frames' headers, of the same size, differ in nothing but
// what differs between the segments of one flow: lengths, the packet's number, the
// sequence number, PSH and the checksums.
func alike(a, b []byte, size int) bool {
	const ipID, ipSum, ipFrom = ipAt + 4, ipAt + 10, ipAt + 12
	const seq, ack, flags, window, sum, urgent = tcpAt + 4, tcpAt + 8, tcpAt + 13, tcpAt + 14, tcpAt + 16, tcpAt + 18
	return string(a[:ipAt+2]) == string(b[:ipAt+2]) &&
		string(a[ipID+2:ipSum]) == string(b[ipID+2:ipSum]) &&
		string(a[ipFrom:seq]) == string(b[ipFrom:seq]) &&
		string(a[ack:flags]) == string(b[ack:flags]) && // and the size of the header
		string(a[window:sum]) == string(b[window:sum]) &&
		string(a[urgent:size]) == string(b[urgent:size])
}

// packet is the run as one packet, with its length set. The checksums are not:
// nobody looks at them. The headers are in memory of their own: the stack copies
// all of what they lie in. A single frame's payload that fills the place it was
// read to is not copied; the place is gone with it.
func (r *run) packet() (b buffer.Buffer) {
	first := r.parts[0]
	at := len(first)
	if r.each > 0 {
		at -= r.each
	}
	head := buffer.NewViewWithData(first[:at])
	b.Append(head)
	if v := *r.place; len(r.parts) == 1 && r.size >= v.Capacity()/2 {
		v.CapLength(r.size)
		v.TrimFront(at)
		*r.place = nil
		b.Append(v)
		return b
	}
	if at == r.size {
		return b
	}
	v := buffer.NewView(r.size - at)
	v.Write(first[at:])
	for _, part := range r.parts[1:] {
		v.Write(part)
	}
	b.Append(v)
	if len(r.parts) > 1 {
		header.IPv4(head.AsSlice()[ipAt:]).SetTotalLength(uint16(r.size - ipAt))
	}
	return b
}
