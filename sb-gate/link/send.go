package link

import (
	"time"

	"sb/sb-gate/frame"

	"golang.org/x/sys/unix"
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
	for _, pkt := range pkts.AsSlice() {
		if pkt.GSOOptions.Type == stack.GSONone {
			e.send(pkt.AsSlices())
		} else {
			e.cut(pkt)
		}
	}
	return pkts.Len(), nil
}

// cut sends a TCP packet as segments of its maximum size, each with its own
// headers and checksums; the stack left only the pseudo-header's in it.
func (e *Endpoint) cut(pkt *stack.PacketBuffer) {
	ipAt := frame.HeaderLen
	tcpAt := ipAt + len(pkt.NetworkHeader().Slice())
	dataAt := tcpAt + len(pkt.TransportHeader().Slice())
	payload := pkt.Data().AsRange().ToSlice()
	segment := make([]byte, 0, dataAt+min(len(payload), int(pkt.GSOOptions.MSS)))
	segment = append(segment, pkt.LinkHeader().Slice()...)
	segment = append(segment, pkt.NetworkHeader().Slice()...)
	segment = append(segment, pkt.TransportHeader().Slice()...)
	ip, tcp := header.IPv4(segment[ipAt:tcpAt]), header.TCP(segment[tcpAt:dataAt])
	id, seq, flags := ip.ID(), tcp.SequenceNumber(), tcp.Flags()

	for off := 0; ; {
		n := min(len(payload)-off, int(pkt.GSOOptions.MSS))
		last := off+n == len(payload)
		segment = append(segment[:dataAt], payload[off:off+n]...)
		ip.SetTotalLength(uint16(dataAt - ipAt + n))
		ip.SetID(id)
		ip.SetChecksum(0)
		ip.SetChecksum(^ip.CalculateChecksum())
		tcp.SetSequenceNumber(seq + uint32(off))
		if last {
			tcp.SetFlags(uint8(flags))
		} else {
			tcp.SetFlags(uint8(flags &^ (header.TCPFlagFin | header.TCPFlagPsh)))
		}
		tcp.SetChecksum(0)
		sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), uint16(dataAt-tcpAt+n))
		tcp.SetChecksum(^checksum.Checksum(segment[tcpAt:], sum))
		e.send([][]byte{segment})
		if off += n; last {
			return
		}
		id++
	}
}

// send writes one frame in one datagram. A machine that does not read is waited
// for once: until it reads again, every further frame is dropped at once, or all
// who send would wait behind each other.
func (e *Endpoint) send(parts [][]byte) {
	e.sending.Lock()
	defer e.sending.Unlock()
	full, waited := false, false
	e.raw.Write(func(fd uintptr) bool {
		full = e.write(int(fd), parts)
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

// write reports whether the frame could not be written because the machine does
// not read.
func (e *Endpoint) write(fd int, parts [][]byte) (full bool) {
	for tries := 0; ; tries++ {
		_, err := unix.Writev(fd, parts)
		switch err {
		case unix.EINTR:
			continue
		case unix.ENOBUFS:
			// macOS: the socket's buffer is full. There is nothing to wait on.
			if tries < 40 && !e.stuck {
				time.Sleep(50 * time.Microsecond)
				continue
			}
			e.stuck = true
			return true
		case unix.EAGAIN:
			return true
		}
		return false // sent, or nobody is there to take it
	}
}
