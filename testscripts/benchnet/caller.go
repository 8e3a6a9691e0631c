package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// caller makes connections to the server, from the guest.
type caller struct {
	*poller
	to      *unix.SockaddrInet4
	host    string
	request []byte
}

func newCaller(ip, host string) (*caller, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, err
	}
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	return &caller{poller: p, to: &unix.SockaddrInet4{Port: serverPort, Addr: addr.As4()}, host: host,
		request: fmt.Appendf(nil, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host)}, nil
}

// dial begins a connection.
func (c *caller) dial() (int, error) {
	fd, err := socket()
	if err != nil {
		return -1, err
	}
	if err := c.add(fd); err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, c.to); err != unix.EINPROGRESS {
		return -1, fmt.Errorf("connect: %w", err)
	}
	return fd, nil
}

// dialled is a connection that stands.
func (c *caller) dialled() (int, error) {
	fd, err := c.dial()
	if err != nil {
		return -1, err
	}
	for {
		if _, err := c.wait(); err != nil {
			return -1, err
		}
		// A socket that is not connected yet cannot be written (connect(2)).
		switch _, err := unix.Write(fd, nil); err {
		case nil:
			return fd, nil
		case unix.EAGAIN:
		default:
			return -1, fmt.Errorf("connect: %w", err)
		}
	}
}

// connects is how long each of n connections took, one after the other, in
// microseconds.
func (c *caller) connects(n int) (all []float64, err error) {
	for range n {
		began := time.Now()
		fd, err := c.dialled()
		if err != nil {
			return nil, err
		}
		all = append(all, micros(time.Since(began)))
		unix.Close(fd)
	}
	return all, nil
}

// requests is how long each of n requests on one connection took.
func (c *caller) requests(n int) (all []float64, err error) {
	fd, err := c.dialled()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for range n {
		began := time.Now()
		if _, err := unix.Write(fd, c.request); err != nil {
			return nil, err
		}
		if err := c.answered(fd, smallAnswer); err != nil {
			return nil, err
		}
		all = append(all, micros(time.Since(began)))
	}
	return all, nil
}

// width is how many connections are in flight at a time.
const width = 16

// mostRefused is how many connections a gateway may refuse in a measurement.
const mostRefused = 20

// many opens connections, width at a time, and makes a request on each, as long as
// more says so; done is called with each that was answered.
func (c *caller) many(more func() bool, done func(fd int)) error {
	open := map[int]int{} // bytes of the answer that have come; -1: the request was not sent
	refused := 0
	for {
		for len(open) < width && more() {
			fd, err := c.dial()
			if err != nil {
				return err
			}
			open[fd] = -1
		}
		if len(open) == 0 {
			return nil
		}
		events, err := c.wait()
		if err != nil {
			return err
		}
		for _, e := range events {
			fd := int(e.Fd)
			got, ok := open[fd]
			if !ok {
				continue
			}
			if open[fd], err = c.step(fd, got); errors.Is(err, unix.ECONNREFUSED) && refused < mostRefused {
				// A gateway that cannot dial says so; it is no connection, and another is tried.
				refused++
				delete(open, fd)
				unix.Close(fd)
				continue
			} else if err != nil {
				return err
			}
			if open[fd] == len(smallAnswer) {
				delete(open, fd)
				done(fd)
			}
		}
	}
}

// step sends the request, or takes what has come of the answer.
func (c *caller) step(fd, got int) (int, error) {
	if got < 0 {
		switch _, err := unix.Write(fd, c.request); err {
		case nil:
			return 0, nil
		case unix.EAGAIN:
			return got, nil
		default:
			return got, fmt.Errorf("connect, or send a request: %w", err)
		}
	}
	var b [len(smallAnswer)]byte
	n, err := unix.Read(fd, b[got:])
	switch {
	case err == unix.EAGAIN:
		return got, nil
	case err != nil:
		return got, fmt.Errorf("read the answer: %w", err)
	case n == 0:
		return got, io.ErrUnexpectedEOF
	case string(b[got:got+n]) != smallAnswer[got:got+n]:
		return got, fmt.Errorf("answered %q", b[got:got+n])
	}
	return got + n, nil
}

// rate is how many connections with a request each come about in d.
func (c *caller) rate(d time.Duration) (n int, took time.Duration, err error) {
	began := time.Now()
	more := func() bool { return time.Since(began) < d }
	err = c.many(more, func(fd int) {
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		unix.Close(fd)
		n++
	})
	return n, time.Since(began), err
}

// hold opens n connections, makes a request on each and keeps them; it returns how
// many there are.
func (c *caller) hold(n int) (kept int, err error) {
	begun := 0
	more := func() bool { begun++; return begun <= n }
	err = c.many(more, func(int) { kept++ })
	return kept, err
}
