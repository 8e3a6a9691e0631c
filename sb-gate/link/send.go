package link

import (
	"time"

	"sb/sb-gate/frame"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// GSOMaxSize implements stack.GSOEndpoint: the largest segment to be cut here.
func (e *Endpoint) GSOMaxSize() uint32 { return 65000 }

// SupportedGSO implements stack.GSOEndpoint.
func (e *Endpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// WritePackets implements stack.LinkEndpoint. What the machine does not take in
// time is dropped.
func (e *Endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	e.sending.Lock()
	defer e.sending.Unlock()
	for _, pkt := range pkts.AsSlice() {
		if pkt.GSOOptions.Type == stack.GSONone {
			all := cursor{slices: pkt.AsSlices()}
			e.out.parts = all.next(e.out.parts, pkt.Size())
			e.queued()
		} else {
			e.cut(pkt)
		}
	}
	e.flush()
	return pkts.Len(), nil
}

// cut queues a TCP packet as segments of its maximum size, each with its own
// headers and checksums; the stack left only the pseudo-header's in it.
func (e *Endpoint) cut(pkt *stack.PacketBuffer) {
	ipAt := frame.HeaderLen
	tcpAt := ipAt + len(pkt.NetworkHeader().Slice())
	dataAt := tcpAt + len(pkt.TransportHeader().Slice())
	tcp := header.TCP(pkt.TransportHeader().Slice())
	id, seq, flags := header.IPv4(pkt.NetworkHeader().Slice()).ID(), tcp.SequenceNumber(), tcp.Flags()
	payload := cursor{slices: pkt.AsSlices()}
	payload.next(nil, dataAt)

	for left := pkt.Data().Size(); ; id++ {
		n := min(left, int(pkt.GSOOptions.MSS))
		left -= n
		head := e.out.heads[len(e.out.heads):]
		head = append(head, pkt.LinkHeader().Slice()...)
		head = append(head, pkt.NetworkHeader().Slice()...)
		head = append(head, pkt.TransportHeader().Slice()...)
		e.out.heads = e.out.heads[:len(e.out.heads)+len(head)]
		first := len(e.out.parts)
		e.out.parts = payload.next(append(e.out.parts, head), n)

		tcp := header.TCP(head[tcpAt:])
		tcp.SetSequenceNumber(seq)
		tcp.SetFlags(uint8(flags))
		if left > 0 {
			tcp.SetFlags(uint8(flags &^ (header.TCPFlagFin | header.TCPFlagPsh)))
		}
		finish(header.IPv4(head[ipAt:tcpAt]), tcp, id, n, e.out.parts[first+1:])
		e.queued()
		if left == 0 {
			return
		}
		seq += uint32(n)
	}
}

// finish sets what depends on a segment's payload of n bytes, and the checksums.
func finish(ip header.IPv4, tcp header.TCP, id uint16, n int, payload [][]byte) {
	ip.SetTotalLength(uint16(len(ip) + len(tcp) + n))
	ip.SetID(id)
	ip.SetChecksum(0)
	ip.SetChecksum(^ip.CalculateChecksum())
	tcp.SetChecksum(0)
	var sum checksum.Checksumer
	sum.Add(tcp)
	for _, part := range payload {
		sum.Add(part)
	}
	pseudo := header.PseudoHeaderChecksum(header.TCPProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), uint16(len(tcp)+n))
	tcp.SetChecksum(^checksum.Combine(sum.Checksum(), pseudo))
}

// queued ends a frame of the batch, and writes the batch if no other fits.
func (e *Endpoint) queued() {
	if e.out.add(); e.out.full() {
		e.flush()
	}
}

// flush writes the batch, one frame in one datagram. A machine that does not
// read is waited for once: until it reads again, every further frame is dropped
// at once, or all who send would wait behind each other.
func (e *Endpoint) flush() {
	defer e.out.reset()
	if e.out.left() == 0 {
		return
	}
	full, waited := false, false
	e.raw.Write(func(fd uintptr) bool {
		full = e.write(int(fd))
		if full && !e.stuck && !waited {
			waited = true
			e.conn.SetWriteDeadline(time.Now().Add(writeWait))
		}
		return !full || e.stuck
	})
	e.stuck = full
	if waited {
		e.conn.SetWriteDeadline(time.Time{})
	}
}
