package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// wire is the gateway's socket: a datagram a frame, or a stream of frames with
// their lengths.
type wire struct {
	fd     int
	stream bool
	in     []byte // what was read of a stream
	start  int
	end    int
}

const sockBuf = 8 << 20

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
	return &wire{fd: fd, stream: stream, in: make([]byte, 4<<20)}, nil
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

// send writes one frame, in parts.
func (w *wire) send(parts ...[]byte) error {
	if w.stream {
		n := 0
		for _, p := range parts {
			n += len(p)
		}
		return w.writeAll(append([][]byte{binary.BigEndian.AppendUint32(nil, uint32(n))}, parts...))
	}
	for {
		_, err := unix.Writev(w.fd, parts)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			if err := w.wait(unix.POLLOUT); err != nil {
				return err
			}
		default:
			return err
		}
	}
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
	const most = 64
	for n := 0; n < most; n++ {
		flags := 0
		if n > 0 {
			flags = unix.MSG_DONTWAIT
		}
		size, _, err := unix.Recvfrom(w.fd, w.in[:70000], flags)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && n > 0:
			return nil
		case err == unix.EAGAIN:
			if err := w.wait(unix.POLLIN); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("read the wire: %w", err)
		}
		if err := each(w.in[:size]); err != nil {
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
