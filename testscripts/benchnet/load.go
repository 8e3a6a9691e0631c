package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// load sends or asks for bodies on one connection for so long, up to the end of
// one, and returns how many bytes moved in which time.
func (c *caller) load(way string, d time.Duration) (moved float64, took time.Duration, err error) {
	fd, err := c.dialled()
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 1<<20)
	began := time.Now()
	for time.Since(began) < d {
		if way == "up" {
			err = c.up(fd, buf)
		} else {
			err = c.down(fd)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", way, err)
		}
		moved += loadSize
	}
	return moved, time.Since(began), nil
}

// up sends a body.
func (c *caller) up(fd int, buf []byte) error {
	head := fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", loadPath, c.host, loadSize)
	if _, err := unix.Write(fd, []byte(head)); err != nil {
		return err
	}
	for left := loadSize; left > 0; {
		n, err := unix.Write(fd, buf[:min(left, len(buf))])
		if err = c.again(err); err != nil {
			return err
		}
		left -= max(0, n)
	}
	return c.answered(fd, smallAnswer)
}

// down asks for a body and takes it.
func (c *caller) down(fd int) error {
	if _, err := unix.Write(fd, fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", loadPath, c.host)); err != nil {
		return err
	}
	if err := c.answered(fd, loadHead); err != nil {
		return err
	}
	for left := loadSize; left > 0; {
		n, err := discard(fd, left)
		if n == 0 && err == nil {
			return io.ErrUnexpectedEOF
		}
		if err = c.again(err); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// again waits until something has changed, if the kernel asks for it.
func (c *caller) again(err error) error {
	if err != unix.EAGAIN {
		return err
	}
	_, err = c.wait()
	return err
}

// answered takes an answer, or its head, which must be this one.
func (c *caller) answered(fd int, want string) error {
	got := make([]byte, 0, 128)
	for len(got) < len(want) {
		n, err := unix.Read(fd, got[len(got):len(want)])
		if n == 0 && err == nil {
			return io.ErrUnexpectedEOF
		}
		if err = c.again(err); err != nil {
			return err
		}
		got = got[:len(got)+max(0, n)]
	}
	if string(got) != want {
		return errors.New("answered " + string(got))
	}
	return nil
}
