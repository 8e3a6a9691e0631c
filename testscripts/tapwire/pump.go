package main

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/rawfile"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// The header before each frame of the device: struct virtio_net_hdr of
// linux/virtio_net.h.
const (
	vnetLen    = 10
	needsCsum  = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	dataValid  = 2 // VIRTIO_NET_HDR_F_DATA_VALID
	gsoTCPv4   = 1 // VIRTIO_NET_HDR_GSO_TCPV4
	etherLen   = 14
	ipLen      = 20
	tcpAt      = etherLen + ipLen
	protoTCP   = 6
	flagFIN    = 1
	flagPSH    = 8
	flagACK    = 16
	maxSegment = 65000
)

// inbox is where the device's frames are read to, as many as are there: a flush
// of several costs the gateway and the pump less than as many flushes.
type inbox struct {
	tap int
	buf []byte
	at  int // what lies before it is queued
}

const (
	inboxSize = 1 << 20
	maxRead   = vnetLen + etherLen + 65536
)

// next reads a frame, with the header before it. Without wait it is nil if none is
// there, or no room for one.
func (in *inbox) next(wait bool) ([]byte, error) {
	room, flags := in.buf[in.at:], uintptr(unix.RWF_NOWAIT)
	if wait {
		flags = 0
	}
	if len(room) < maxRead {
		return nil, nil
	}
	part := rawfile.IovecFromBytes(room)
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(in.tap), uintptr(unsafe.Pointer(&part)), 1, nowhere, nowhere, flags)
		switch errno {
		case 0:
			in.at += int(n)
			return room[:n], nil
		case unix.EINTR:
		case unix.EAGAIN:
			return nil, nil
		default:
			return nil, fmt.Errorf("read the device: %w", errno)
		}
	}
}

// nowhere is the offset of a file that has none.
const nowhere = ^uintptr(0)

// up carries the device's frames to the wire.
func up(tap int, w *wire) error {
	in := &inbox{tap: tap, buf: make([]byte, inboxSize)}
	for {
		in.at = 0
		for wait := true; ; wait = false {
			b, err := in.next(wait)
			if err != nil {
				return err
			}
			if b == nil {
				break
			}
			if err := lost(send(w, b)); err != nil {
				return err
			}
		}
		if err := lost(w.flush()); err != nil {
			return err
		}
	}
}

// lost forgives that nobody is there yet to take a frame, or no more.
func lost(err error) error {
	if err == nil || err == unix.ECONNREFUSED {
		return nil
	}
	return fmt.Errorf("write to the wire: %w", err)
}

// send queues what was read of the device: a frame, or a segment to be cut.
func send(w *wire, b []byte) error {
	hdr, frame := b[:vnetLen], b[vnetLen:]
	if hdr[1]&0x7f == gsoTCPv4 && len(frame) > *mtu+etherLen {
		return cut(w, frame, int(binary.LittleEndian.Uint16(hdr[4:])))
	}
	if hdr[0]&needsCsum != 0 {
		start, off := int(binary.LittleEndian.Uint16(hdr[6:])), int(binary.LittleEndian.Uint16(hdr[8:]))
		finish(frame, start, off)
	}
	return w.queue(frame, nil)
}

// finish makes a checksum that was left to us: the field holds the sum of the
// pseudo-header.
func finish(frame []byte, start, off int) {
	if start+off+2 > len(frame) {
		return
	}
	sum := ^checksum.Checksum(frame[start:], 0)
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(frame[start+off:], sum)
}

// cut sends a large TCP segment as frames of the MTU.
func cut(w *wire, frame []byte, mss int) error {
	dataAt := dataAt(frame)
	payload := frame[dataAt:]
	seq := binary.BigEndian.Uint32(frame[tcpAt+4:])
	id := binary.BigEndian.Uint16(frame[etherLen+4:])
	flags := frame[tcpAt+13]
	for off := 0; off < len(payload); off += mss {
		part := payload[off:min(off+mss, len(payload))]
		head := w.head(frame[:dataAt])
		if off+mss < len(payload) {
			head[tcpAt+13] = flags &^ (flagFIN | flagPSH)
		} else {
			head[tcpAt+13] = flags
		}
		binary.BigEndian.PutUint32(head[tcpAt+4:], seq+uint32(off))
		binary.BigEndian.PutUint16(head[etherLen+4:], id)
		id++
		ipHeader(head[etherLen:], ipLen+dataAt-tcpAt+len(part))
		sum := pseudo(head[etherLen:], dataAt-tcpAt+len(part))
		binary.BigEndian.PutUint16(head[tcpAt+16:], 0)
		sum = checksum.Checksum(head[tcpAt:], sum)
		sum = checksum.Checksum(part, sum)
		binary.BigEndian.PutUint16(head[tcpAt+16:], ^sum)
		if err := w.queue(head, part); err != nil {
			return err
		}
	}
	return nil
}

// ipHeader sets the length and the checksum.
func ipHeader(ip []byte, total int) {
	binary.BigEndian.PutUint16(ip[2:], uint16(total))
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], ^checksum.Checksum(ip[:ipLen], 0))
}

// pseudo is the sum of the pseudo-header of a TCP segment of n bytes.
func pseudo(ip []byte, n int) uint16 {
	sum := checksum.Checksum(ip[12:20], uint16(protoTCP))
	return checksum.Combine(sum, uint16(n))
}

// down carries the wire's frames to the device, joining runs of one TCP flow.
func down(w *wire, tap int) error {
	j := &joiner{tap: tap, parts: make([]unix.Iovec, 0, maxBatch+1)}
	take := j.take
	for {
		if err := w.receive(take); err != nil {
			return err
		}
		if err := j.flush(); err != nil {
			return err
		}
	}
}

// joiner holds one large segment that is being put together: the parts lie where
// they were received.
type joiner struct {
	tap   int
	vnet  [vnetLen]byte
	first []byte       // the first frame; nil: nothing
	parts []unix.Iovec // the header of the device, the first frame, the payloads of others
	size  int          // of all frames
	mss   int
	next  uint32 // the sequence number that goes on with it
	full  bool   // a shorter segment was the last
}

func (j *joiner) take(frame []byte) error {
	joins := joinable(frame)
	if joins && j.join(frame) {
		return nil
	}
	if err := j.flush(); err != nil {
		return err
	}
	j.vnet = [vnetLen]byte{}
	j.first, j.size, j.full = frame, len(frame), true
	j.parts = append(j.parts[:0], rawfile.IovecFromBytes(j.vnet[:]), rawfile.IovecFromBytes(frame))
	if joins {
		dataAt := dataAt(frame)
		j.mss = len(frame) - dataAt
		j.next, j.full = binary.BigEndian.Uint32(frame[tcpAt+4:])+uint32(j.mss), frame[tcpAt+13]&flagPSH != 0
	}
	return nil
}

// join adds a frame that goes on with what there is.
func (j *joiner) join(frame []byte) bool {
	at := dataAt(frame)
	payload := len(frame) - at
	if j.first == nil || j.full || binary.BigEndian.Uint32(frame[tcpAt+4:]) != j.next || payload > j.mss || j.size+payload > maxSegment ||
		len(j.parts) == cap(j.parts) || !same(j.first, frame, at) {
		return false
	}
	j.parts = append(j.parts, rawfile.IovecFromBytes(frame[at:]))
	j.size += payload
	j.next += uint32(payload)
	j.full = payload < j.mss || frame[tcpAt+13]&flagPSH != 0
	j.first[tcpAt+13] |= frame[tcpAt+13] & flagPSH
	return true
}

// dataAt is where the payload of a TCP segment begins.
func dataAt(f []byte) int { return tcpAt + int(f[tcpAt+12]>>4)*4 }

// joinable: an IPv4 TCP segment with data and no flags but ACK and PSH.
func joinable(f []byte) bool {
	if len(f) < tcpAt+20 || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != protoTCP {
		return false
	}
	flags := f[tcpAt+13]
	return flags&^flagPSH == flagACK && len(f) > dataAt(f) && int(binary.BigEndian.Uint16(f[16:])) == len(f)-etherLen
}

// same: of the same flow, with the same acknowledgement, window and options.
func same(have, frame []byte, dataAt int) bool {
	return string(have[26:tcpAt+4]) == string(frame[26:tcpAt+4]) && // addresses and ports
		string(have[tcpAt+8:tcpAt+13]) == string(frame[tcpAt+8:tcpAt+13]) &&
		string(have[tcpAt+14:tcpAt+16]) == string(frame[tcpAt+14:tcpAt+16]) &&
		string(have[tcpAt+20:dataAt]) == string(frame[tcpAt+20:dataAt])
}

// flush writes what was put together.
func (j *joiner) flush() error {
	if j.first == nil {
		return nil
	}
	if len(j.parts) > 2 {
		ipHeader(j.first[etherLen:], j.size-etherLen)
		j.vnet[0], j.vnet[1] = needsCsum, gsoTCPv4
		binary.LittleEndian.PutUint16(j.vnet[2:], uint16(dataAt(j.first)))
		binary.LittleEndian.PutUint16(j.vnet[4:], uint16(j.mss))
		binary.LittleEndian.PutUint16(j.vnet[6:], tcpAt)
		binary.LittleEndian.PutUint16(j.vnet[8:], 16)
		binary.BigEndian.PutUint16(j.first[tcpAt+16:], pseudo(j.first[etherLen:], j.size-tcpAt))
	}
	j.first = nil
	for {
		_, err := call(unix.SYS_WRITEV, uintptr(j.tap), uintptr(unsafe.Pointer(&j.parts[0])), uintptr(len(j.parts)), 0)
		switch err {
		case unix.EINTR, unix.EAGAIN:
		case nil, unix.EINVAL, unix.EIO, unix.ENOBUFS:
			return nil // a frame that the kernel does not take is lost, as on a wire
		default:
			return err
		}
	}
}
