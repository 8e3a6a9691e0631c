package main

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
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
	protoTCP   = 6
	flagFIN    = 1
	flagPSH    = 8
	flagACK    = 16
	maxSegment = 65000
)

// up carries the device's frames to the wire.
func up(tap int, w *wire) error {
	buf := make([]byte, vnetLen+70000)
	for {
		n, err := unix.Read(tap, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the device: %w", err)
		}
		hdr, frame := buf[:vnetLen], buf[vnetLen:n]
		if hdr[1]&0x7f == gsoTCPv4 && len(frame) > *mtu+etherLen {
			err = cut(w, frame, int(binary.LittleEndian.Uint16(hdr[4:])))
		} else {
			if hdr[0]&needsCsum != 0 {
				start, off := int(binary.LittleEndian.Uint16(hdr[6:])), int(binary.LittleEndian.Uint16(hdr[8:]))
				finish(frame, start, off)
			}
			err = w.queue(frame, nil)
		}
		if err == nil {
			err = w.flush()
		}
		if err == unix.ECONNREFUSED {
			continue // nobody is there yet, or no more; the frame is lost
		}
		if err != nil {
			return fmt.Errorf("write to the wire: %w", err)
		}
	}
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
	tcpAt := etherLen + ipLen
	dataAt := tcpAt + int(frame[tcpAt+12]>>4)*4
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
	j := &joiner{tap: tap, buf: make([]byte, 0, vnetLen+70000)}
	for {
		if err := w.receive(j.take); err != nil {
			return err
		}
		if err := j.flush(); err != nil {
			return err
		}
	}
}

// joiner holds one large segment that is being put together.
type joiner struct {
	tap  int
	buf  []byte // vnet header and frame; empty: nothing
	mss  int
	next uint32 // the sequence number that goes on with it
	full bool   // a shorter segment was the last
}

func (j *joiner) take(frame []byte) error {
	if !joinable(frame) {
		if err := j.flush(); err != nil {
			return err
		}
		return j.write(append(make([]byte, vnetLen, vnetLen+len(frame)), frame...))
	}
	tcpAt := etherLen + ipLen
	dataAt := tcpAt + int(frame[tcpAt+12]>>4)*4
	payload := len(frame) - dataAt
	seq := binary.BigEndian.Uint32(frame[tcpAt+4:])
	if len(j.buf) > 0 && !j.full && seq == j.next && payload <= j.mss && len(j.buf)+payload < maxSegment && j.same(frame, dataAt) {
		j.buf = append(j.buf, frame[dataAt:]...)
		j.next += uint32(payload)
		j.full = payload < j.mss || frame[tcpAt+13]&flagPSH != 0
		j.buf[vnetLen+tcpAt+13] |= frame[tcpAt+13] & flagPSH
		return nil
	}
	if err := j.flush(); err != nil {
		return err
	}
	j.buf = append(append(j.buf[:0], make([]byte, vnetLen)...), frame...)
	j.mss, j.next, j.full = payload, seq+uint32(payload), frame[tcpAt+13]&flagPSH != 0
	return nil
}

// joinable: an IPv4 TCP segment with data and no flags but ACK and PSH.
func joinable(f []byte) bool {
	if len(f) < etherLen+ipLen+20 || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != protoTCP {
		return false
	}
	flags := f[etherLen+ipLen+13]
	dataAt := etherLen + ipLen + int(f[etherLen+ipLen+12]>>4)*4
	return flags&^flagPSH == flagACK && len(f) > dataAt && int(binary.BigEndian.Uint16(f[16:])) == len(f)-etherLen
}

// same: of the same flow, with the same acknowledgement, window and options.
func (j *joiner) same(frame []byte, dataAt int) bool {
	have := j.buf[vnetLen:]
	tcpAt := etherLen + ipLen
	return string(have[26:tcpAt+4]) == string(frame[26:tcpAt+4]) && // addresses and ports
		string(have[tcpAt+8:tcpAt+13]) == string(frame[tcpAt+8:tcpAt+13]) &&
		string(have[tcpAt+14:tcpAt+16]) == string(frame[tcpAt+14:tcpAt+16]) &&
		string(have[tcpAt+20:dataAt]) == string(frame[tcpAt+20:dataAt])
}

// flush writes what was put together.
func (j *joiner) flush() error {
	if len(j.buf) == 0 {
		return nil
	}
	frame := j.buf[vnetLen:]
	tcpAt := etherLen + ipLen
	dataAt := tcpAt + int(frame[tcpAt+12]>>4)*4
	if len(frame)-dataAt > j.mss {
		ipHeader(frame[etherLen:], len(frame)-etherLen)
		hdr := j.buf[:vnetLen]
		hdr[0], hdr[1] = needsCsum, gsoTCPv4
		binary.LittleEndian.PutUint16(hdr[2:], uint16(dataAt))
		binary.LittleEndian.PutUint16(hdr[4:], uint16(j.mss))
		binary.LittleEndian.PutUint16(hdr[6:], uint16(tcpAt))
		binary.LittleEndian.PutUint16(hdr[8:], 16)
		binary.BigEndian.PutUint16(frame[tcpAt+16:], pseudo(frame[etherLen:], len(frame)-tcpAt))
	}
	err := j.write(j.buf)
	j.buf = j.buf[:0]
	return err
}

func (j *joiner) write(b []byte) error {
	for {
		_, err := unix.Write(j.tap, b)
		switch err {
		case unix.EINTR, unix.EAGAIN:
		case unix.EINVAL, unix.EIO, unix.ENOBUFS:
			return nil // a frame that the kernel does not take is lost, as on a wire
		default:
			return err
		}
	}
}
