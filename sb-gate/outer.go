package main

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outerConn is the outer half of a flow. It counts the payload that goes over
// its socket, in the kernel's own terms where the end is a sudden one.
type outerConn struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	at   netip.AddrPort // where it leads

	buffers  *pool // of next; set before it is first called
	up, down atomic.Int64
	shut     atomic.Bool // our side has said its end
	handed   atomic.Bool // to sb-broker: the kernel alone knows what goes over it
}

func newOuterConn(c *net.TCPConn) (*outerConn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	at := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	return &outerConn{conn: c, raw: raw, buffers: smallBuffers, at: netip.AddrPortFrom(at.Addr().Unmap(), at.Port())}, nil
}

// Write implements io.Writer. What the kernel took is counted while the
// descriptor is still held, so that cut misses nothing.
func (c *outerConn) Write(b []byte) (total int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	var fail error
	err = c.raw.Write(func(fd uintptr) bool {
		for total < len(b) {
			n, werr := writeNow(int(fd), b[total:])
			switch {
			case n > 0:
				total += n
				c.up.Add(int64(n))
			case werr == unix.EINTR:
			case werr == unix.EAGAIN:
				return false
			default:
				fail = werr
				return true
			}
		}
		return true
	})
	if err == nil {
		err = fail
	}
	return total, err
}

// Read implements io.Reader.
func (c *outerConn) Read(b []byte) (n int, err error) {
	if rerr := c.raw.Read(func(fd uintptr) bool {
		n, err = c.receive(fd, b)
		return err != unix.EAGAIN
	}); rerr != nil {
		return 0, rerr
	}
	return n, err
}

// next waits until the server has sent something, then takes a buffer and hands
// what is there to fn. io.EOF: the server has ended.
func (c *outerConn) next(fn func([]byte) error) error {
	var buf []byte
	n, err := 0, error(nil)
	rerr := c.raw.Read(func(fd uintptr) bool {
		buf = c.buffers.get()
		if n, err = c.receive(fd, buf); err != unix.EAGAIN {
			return true
		}
		c.buffers.put(buf)
		buf = nil
		return false
	})
	if buf != nil {
		defer c.buffers.put(buf)
	}
	switch {
	case rerr != nil:
		return rerr
	case err != nil:
		return err
	}
	return fn(buf[:n])
}

// receive reads what is there.
func (c *outerConn) receive(fd uintptr, b []byte) (int, error) {
	for {
		n, err := readNow(int(fd), b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			c.down.Add(int64(n))
			return n, nil
		}
	}
}

// awaitSome waits until the server has sent something, and returns how many bytes
// are there. io.EOF: it has ended. A deadline ends the wait.
func (c *outerConn) awaitSome() (n int, err error) {
	if rerr := c.raw.Read(func(fd uintptr) bool {
		if n, err = unreadBytes(int(fd)), nil; n == 0 {
			n, err = c.peek(fd)
		}
		return err != unix.EAGAIN
	}); rerr != nil {
		return 0, rerr
	}
	return n, err
}

// peek looks for one byte, which stays where it is.
func (c *outerConn) peek(fd uintptr) (int, error) {
	for {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// closeWrite sends the guest's end.
func (c *outerConn) closeWrite() error {
	c.shut.Store(true)
	return c.conn.CloseWrite()
}

// close ends the connection after everything was passed on.
func (c *outerConn) close() (up, down int64) {
	if c.handed.Load() {
		return c.closeHanded()
	}
	c.conn.SetLinger(-1)
	c.conn.Close()
	return c.up.Load(), c.down.Load()
}

// cut ends the connection with a reset: what the kernel still holds does not go
// out and is not counted, and what came and was not read is.
func (c *outerConn) cut() (up, down int64) {
	if c.handed.Load() {
		return c.cutHanded()
	}
	c.conn.SetDeadline(time.Unix(1, 0))
	// Whoever was reading or writing has let go when these return.
	c.raw.Read(func(uintptr) bool { return true })
	c.raw.Write(func(uintptr) bool { return true })
	unsent, unread := 0, 0
	c.raw.Control(func(fd uintptr) {
		takeNoMore(int(fd))
		unsent = unsentBytes(int(fd))
		unread = unreadBytes(int(fd))
	})
	closeNow(c.conn)
	if unsent > 0 && c.shut.Load() {
		unsent-- // the end counts as one
	}
	return c.up.Load() - int64(unsent), c.down.Load() + int64(unread)
}

// resetOnClose has a socket end with a reset, whoever closes it: if the gate dies,
// what the kernel still holds of the guest's does not go out, and the server does
// not take the end for a whole one.
func resetOnClose(raw syscall.RawConn) error {
	var fail error
	err := raw.Control(func(fd uintptr) {
		fail = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	return errors.Join(err, fail)
}

// closeNow ends a connection with a reset.
func closeNow(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
