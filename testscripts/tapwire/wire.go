package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/rawfile"
)

// wire is the gateway's socket: a datagram a frame, or a stream of frames with
// their lengths.
type wire struct {
	fd     int
	stream bool
	in     []byte // what was read: of a stream, or a frame in each slot
	start  int
	end    int
	reads  []rawfile.MMsgHdr // of datagrams: many in one call

	// frames that are queued, two parts each; and what is made for them
	parts   [][]byte
	heads   []byte
	vectors []unix.Iovec
	frames  []rawfile.MMsgHdr
}

const (
	sockBuf  = 8 << 20
	maxBatch = 64
	maxHead  = 14 + 20 + 60 // Ethernet, IPv4 without options, TCP with all
	slot     = 66 << 10
)

func newWire(fd int, stream bool) (*wire, error) {
	if fd < 0 {
		return nil, errors.New("no wire was given")
	}
	// Forced where that is allowed: the pump must not be what is measured.
	for _, opt := range [][2]int{{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}, {unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[0], sockBuf) != nil {
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[1], sockBuf)
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, err
	}
	w := &wire{fd: fd, stream: stream, in: make([]byte, maxBatch*slot),
		heads: make([]byte, 0, maxBatch*maxHead), vectors: make([]unix.Iovec, 0, 2*maxBatch)}
	for i := range maxBatch {
		w.reads = append(w.reads, message(rawfile.IovecFromBytes(w.in[i*slot:(i+1)*slot])))
	}
	return w, nil
}

func message(parts ...unix.Iovec) (m rawfile.MMsgHdr) {
	m.Msg.Iov = &parts[0]
	m.Msg.SetIovlen(len(parts))
	return m
}

// wait waits until the socket can be written or read: a socket that the other
// side shares may be non-blocking.
func (w *wire) wait(events int16) error {
	p := []unix.PollFd{{Fd: int32(w.fd), Events: events}}
	for {
		if _, err := unix.Poll(p, -1); err != unix.EINTR {
			return err
		}
	}
}

// queue adds a frame of two parts to those that flush writes. The parts stay as
// they are until then.
func (w *wire) queue(head, rest []byte) error {
	w.parts = append(w.parts, head, rest)
	if len(w.parts) == 2*maxBatch {
		return w.flush()
	}
	return nil
}

// head is a copy of b that stays until flush.
func (w *wire) head(b []byte) []byte {
	n := len(w.heads)
	w.heads = append(w.heads, b...)
	return w.heads[n:]
}

// flush writes what is queued.
func (w *wire) flush() error {
	defer func() { w.parts, w.heads = w.parts[:0], w.heads[:0] }()
	if w.stream {
		var all [][]byte
		for i := 0; i < len(w.parts); i += 2 {
			all = append(all, binary.BigEndian.AppendUint32(nil, uint32(len(w.parts[i])+len(w.parts[i+1]))), w.parts[i], w.parts[i+1])
		}
		return w.writeAll(all)
	}
	w.vectors, w.frames = w.vectors[:0], w.frames[:0]
	for i := 0; i < len(w.parts); i += 2 {
		first := len(w.vectors)
		w.vectors = append(w.vectors, rawfile.IovecFromBytes(w.parts[i]))
		if len(w.parts[i+1]) > 0 {
			w.vectors = append(w.vectors, rawfile.IovecFromBytes(w.parts[i+1]))
		}
		w.frames = append(w.frames, message(w.vectors[first:]...))
	}
	for frames := w.frames; len(frames) > 0; {
		n, err := rawfile.NonBlockingSendMMsg(w.fd, frames)
		switch err {
		case 0:
			frames = frames[n:]
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			if err := w.wait(unix.POLLOUT); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

func (w *wire) writeAll(parts [][]byte) error {
	for len(parts) > 0 {
		n, err := unix.Writev(w.fd, parts)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			if err := w.wait(unix.POLLOUT); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if n > 0 {
			parts[0] = parts[0][n:]
		}
	}
	return nil
}

// receive waits for frames and calls each with those that are there, at most
// some; the slices are valid until it is called again.
func (w *wire) receive(each func([]byte) error) error {
	if w.stream {
		return w.receiveStream(each)
	}
	n, _, err := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(w.fd), uintptr(unsafe.Pointer(&w.reads[0])), maxBatch, unix.MSG_DONTWAIT, 0, 0)
	switch {
	case err == unix.EINTR:
		return nil
	case err == unix.EAGAIN:
		return w.wait(unix.POLLIN)
	case err != 0:
		return fmt.Errorf("read the wire: %w", err)
	}
	for i := range n {
		if err := each(w.in[i*slot:][:w.reads[i].Len]); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) receiveStream(each func([]byte) error) error {
	if w.start > 0 {
		copy(w.in, w.in[w.start:w.end])
		w.start, w.end = 0, w.end-w.start
	}
	n, err := unix.Read(w.fd, w.in[w.end:])
	switch {
	case err == unix.EINTR:
		return nil
	case err == unix.EAGAIN:
		return w.wait(unix.POLLIN)
	case err != nil:
		return fmt.Errorf("read the wire: %w", err)
	case n == 0:
		return io.EOF
	}
	for w.end += n; w.end-w.start >= 4; {
		size := int(binary.BigEndian.Uint32(w.in[w.start:]))
		if w.end-w.start < 4+size {
			break
		}
		if err := each(w.in[w.start+4 : w.start+4+size]); err != nil {
			return err
		}
		w.start += 4 + size
	}
	return nil
}
