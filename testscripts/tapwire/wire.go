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
// their lengths. One thread writes to it and one reads.
type wire struct {
	fd     int
	stream bool
	in     []byte // what was read: of a stream, or a frame in each slot
	start  int
	end    int
	reads  []rawfile.MMsgHdr // of datagrams: many in one call

	// Frames that are queued, and what is made for them. None of it is moved or
	// made anew.
	queued  int
	heads   []byte
	lengths [maxBatch][4]byte
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
	w := &wire{fd: fd, stream: stream, in: make([]byte, maxBatch*slot), heads: make([]byte, 0, maxBatch*maxHead),
		vectors: make([]unix.Iovec, 0, 3*maxBatch), frames: make([]rawfile.MMsgHdr, 0, maxBatch)}
	for i := range maxBatch {
		part := rawfile.IovecFromBytes(w.in[i*slot : (i+1)*slot])
		w.reads = append(w.reads, message([]unix.Iovec{part}))
	}
	return w, nil
}

func message(parts []unix.Iovec) (m rawfile.MMsgHdr) {
	m.Msg.Iov = &parts[0]
	m.Msg.SetIovlen(len(parts))
	return m
}

// wait waits until the socket can be written or read: a socket that the other
// side shares may be non-blocking.
func (w *wire) wait(events int16) error {
	p := unix.PollFd{Fd: int32(w.fd), Events: events}
	for {
		if _, err := call(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, 0, 0); err != unix.EINTR {
			return err
		}
	}
}

// full says that no other frame can be queued before a flush.
func (w *wire) full() bool { return w.queued == maxBatch }

// queue adds a frame of two parts to those that flush writes. The parts stay as
// they are until then.
func (w *wire) queue(head, rest []byte) error {
	first := len(w.vectors)
	if w.stream {
		length := w.lengths[w.queued][:]
		binary.BigEndian.PutUint32(length, uint32(len(head)+len(rest)))
		w.vectors = append(w.vectors, rawfile.IovecFromBytes(length))
	}
	w.vectors = append(w.vectors, rawfile.IovecFromBytes(head))
	if len(rest) > 0 {
		w.vectors = append(w.vectors, rawfile.IovecFromBytes(rest))
	}
	w.frames = append(w.frames, message(w.vectors[first:]))
	if w.queued++; w.full() {
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
	vectors, frames := w.vectors, w.frames
	w.vectors, w.frames, w.heads, w.queued = w.vectors[:0], w.frames[:0], w.heads[:0], 0
	if w.stream {
		return w.writeAll(vectors)
	}
	for len(frames) > 0 {
		n, err := call(unix.SYS_SENDMMSG, uintptr(w.fd), uintptr(unsafe.Pointer(&frames[0])), uintptr(len(frames)), unix.MSG_DONTWAIT)
		switch err {
		case nil:
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

func (w *wire) writeAll(parts []unix.Iovec) error {
	for len(parts) > 0 {
		n, err := call(unix.SYS_WRITEV, uintptr(w.fd), uintptr(unsafe.Pointer(&parts[0])), uintptr(len(parts)), 0)
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
		for len(parts) > 0 && n >= int(parts[0].Len) {
			n -= int(parts[0].Len)
			parts = parts[1:]
		}
		if n > 0 {
			parts[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(parts[0].Base), n))
			parts[0].SetLen(int(parts[0].Len) - n)
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
	n, err := call(unix.SYS_RECVMMSG, uintptr(w.fd), uintptr(unsafe.Pointer(&w.reads[0])), maxBatch, unix.MSG_WAITFORONE)
	switch err {
	case nil:
	case unix.EINTR:
		return nil
	case unix.EAGAIN:
		return w.wait(unix.POLLIN)
	default:
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
	room := w.in[w.end:]
	n, err := call(unix.SYS_READ, uintptr(w.fd), uintptr(unsafe.Pointer(&room[0])), uintptr(len(room)), 0)
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

// call makes a system call that may wait, of which the runtime is not told: it
// would take the processor away from this thread, give it to another and have it
// back afterwards, for each frame. There are processors enough, and nothing here
// is collected.
func call(number, a, b, c, d uintptr) (int, error) {
	n, _, errno := unix.RawSyscall6(number, a, b, c, d, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
