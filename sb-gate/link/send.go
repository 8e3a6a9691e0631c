package link

import (
	"runtime"
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

// WritePackets implements stack.LinkEndpoint. Small frames go out together with
// others that follow at once: each call to the kernel costs as much as many of
// them, and wakes the machine. What it does not take in time is dropped.
func (e *Endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	e.sending.Lock()
	defer e.sending.Unlock()
	if e.closed {
		return 0, &tcpip.ErrClosedForSend{}
	}
	borrowed := false
	for _, pkt := range pkts.AsSlice() {
		switch {
		case pkt.GSOOptions.Type != stack.GSONone:
			borrowed = true
			e.cut(pkt)
		case pkt.Size() > maxSmall:
			borrowed = true
			all := cursor{slices: pkt.AsSlices()}
			e.out.parts = all.next(e.out.parts, pkt.Size())
			e.queued()
		default:
			e.out.copy(pkt.AsSlices())
			e.queued()
		}
	}
	if borrowed {
		e.flush() // what they lie in is the stack's again
	} else if e.out.left() > 0 {
		select {
		case e.due <- struct{}{}:
		default:
		}
	}
	return pkts.Len(), nil
}

// sendHeld writes what waits, until the wire is closed.
func (e *Endpoint) sendHeld() {
	for range e.due {
		runtime.Gosched() // who can go on now may send too
		e.sending.Lock()
		e.flush()
		e.sending.Unlock()
	}
}

// sendLast writes what waits and lets nothing follow; false: that has been.
func (e *Endpoint) sendLast() bool {
	e.sending.Lock()
	defer e.sending.Unlock()
	if e.closed {
		return false
	}
	e.closed = true
	e.flush()
	close(e.due)
	return true
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
	if e.out.left() == 0 {
		return
	}
	defer e.out.reset()
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
