//go:build linux

package fuse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// relay copies messages between the kernel (dev) and the host (port). It
// allocates nothing for a message.
type relay struct {
	dev, port int
	ready     func() error // called once INIT was answered
	writing   sync.Mutex   // of a message to port
	ends      chan error   // why a thread ended

	// Notifications go to the kernel in a thread of their own: there one can
	// have to wait for a reply that comes after it.
	free, full chan *notice
}

type notice struct {
	b [fusewire.MaxNotice]byte
	n int
}

// readers take requests from the kernel: while one copies a large request to
// the port, the other already has the next.
const readers = 2

func newRelay(dev, port int, ready func() error) *relay {
	r := &relay{
		dev: dev, port: port, ready: ready, ends: make(chan error, readers+2),
		free: make(chan *notice, fusewire.AckWindow), full: make(chan *notice, fusewire.AckWindow),
	}
	for range fusewire.AckWindow {
		r.free <- new(notice)
	}
	return r
}

// run relays until either end ends.
func (r *relay) run() error {
	for range readers {
		go func() { r.ends <- r.requests() }()
	}
	go func() { r.ends <- r.replies() }()
	go func() { r.ends <- r.notices() }()
	return <-r.ends
}

// requests copies from the kernel to the host.
func (r *relay) requests() error {
	buf := make([]byte, fusewire.MaxMessage)
	for {
		n, err := unix.Read(r.dev, buf)
		switch err {
		case nil:
			if n == 0 {
				return nil
			}
			if err := r.toHost(buf[:n]); err != nil {
				return err
			}
		case unix.EINTR, unix.EAGAIN, unix.ENOENT: // ENOENT: it was interrupted before it was read
		case unix.ENODEV:
			return nil // unmounted
		default:
			return fmt.Errorf("read a request from the kernel: %w", err)
		}
	}
}

// toHost writes one message to the port, which takes 32 KiB at a time if it is a
// virtio one.
func (r *relay) toHost(b []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	for len(b) > 0 {
		n, err := unix.Write(r.port, b)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("write to the share's port: %w", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

var errBroken = errors.New("the host sent what is no message")

// replies copies from the host to the kernel.
func (r *relay) replies() error {
	buf := make([]byte, 2*fusewire.MaxMessage)
	start, end, first := 0, 0, true
	for {
		size, err := message(buf[start:end])
		if err != nil {
			return err
		}
		if size == 0 {
			if len(buf)-start < fusewire.MaxMessage {
				end = copy(buf, buf[start:end])
				start = 0
			}
			n, err := unix.Read(r.port, buf[end:])
			if err == unix.EINTR {
				continue
			}
			if err == unix.ECONNRESET || err == nil && n == 0 {
				return nil // the host has ended
			}
			if err != nil {
				return fmt.Errorf("read from the share's port: %w", err)
			}
			end += n
			continue
		}
		if err := r.toKernel(buf[start:start+size], first); err != nil {
			return err
		}
		if start += size; start == end {
			start, end = 0, 0
		}
		first = false
	}
}

// message is the size of the message that b begins with, or 0 if it is not all
// there.
func message(b []byte) (int, error) {
	if len(b) < fusewire.OutHeader {
		return 0, nil
	}
	size := binary.LittleEndian.Uint32(b)
	if size < fusewire.OutHeader || size > fusewire.MaxMessage {
		return 0, errBroken
	}
	if int(size) > len(b) {
		return 0, nil
	}
	return int(size), nil
}

// toKernel hands over one message; the first one answers INIT.
func (r *relay) toKernel(b []byte, first bool) error {
	if binary.LittleEndian.Uint64(b[8:]) == 0 {
		return r.putAside(b)
	}
	_, err := unix.Write(r.dev, b)
	switch err {
	case nil, unix.ENOENT: // ENOENT: nobody waits for it any more
	case unix.ENODEV:
		return nil // unmounted; requests says so
	default:
		if first {
			return fmt.Errorf("answer the kernel's INIT: %w", err)
		}
		// The kernel has answered the request itself, with EIO.
	}
	if !first {
		return nil
	}
	if code := int32(binary.LittleEndian.Uint32(b[4:])); code != 0 {
		return fmt.Errorf("the host refuses the share: %w", unix.Errno(-code))
	}
	return r.ready()
}

// putAside keeps a notification for the thread that hands them over.
func (r *relay) putAside(b []byte) error {
	select {
	case n := <-r.free:
		if len(b) > len(n.b) {
			return errBroken
		}
		n.n = copy(n.b[:], b)
		r.full <- n
		return nil
	default:
		return errBroken // more than AckWindow of them
	}
}

// notices hands notifications over and tells the host so.
func (r *relay) notices() error {
	var ack [fusewire.InHeader]byte
	binary.LittleEndian.PutUint32(ack[:], fusewire.InHeader)
	binary.LittleEndian.PutUint32(ack[4:], fusewire.Ack)
	for n := range r.full {
		// An error says that the kernel does not know the file: all the better.
		unix.Write(r.dev, n.b[:n.n])
		r.free <- n
		if err := r.toHost(ack[:]); err != nil {
			return err
		}
	}
	return nil
}
