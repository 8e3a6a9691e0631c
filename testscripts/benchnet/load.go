package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// loadSize is the body of one request of the load, in bytes.
const loadSize = 64 << 20

// loadPort is where the server of the load listens.
const loadPort = "9000"

// cubic sets the congestion control that Linux has of itself, whatever this
// host's was configured to: a guest's kernel is another one.
func cubic(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	})
}

// serveLoad is an HTTP server that costs little: it takes bodies and gives them,
// from and to one buffer.
func serveLoad(addr string) error {
	listen := net.ListenConfig{Control: cubic}
	l, err := listen.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("up")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			r := bufio.NewReader(c)
			buf := make([]byte, 1<<20)
			for answerLoad(c, r, buf) == nil {
			}
		}()
	}
}

func answerLoad(c net.Conn, r *bufio.Reader, buf []byte) error {
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	if req.Method == http.MethodGet {
		if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", loadSize); err != nil {
			return err
		}
		return give(c, buf)
	}
	if err := drain(r, req.ContentLength, buf); err != nil {
		return err
	}
	_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	return err
}

// give writes the body of a request or an answer.
func give(w io.Writer, buf []byte) error {
	for left := loadSize; left > 0; left -= len(buf) {
		buf = buf[:min(left, len(buf))]
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// drain reads n bytes.
func drain(r io.Reader, n int64, buf []byte) error {
	for n > 0 {
		m, err := r.Read(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}

// load sends or asks for bodies on one connection for so long, up to the end of
// one, and returns how many bytes moved in which time.
func load(way, addr, host string, d time.Duration) (moved float64, took time.Duration, err error) {
	dialer := net.Dialer{Control: cubic}
	c, err := dialer.Dial("tcp", addr)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	buf := make([]byte, 1<<20)
	began := time.Now()
	for time.Since(began) < d {
		if err := loadOnce(c, r, way, host, buf); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", way, err)
		}
		moved += loadSize
	}
	return moved, time.Since(began), nil
}

func loadOnce(c net.Conn, r *bufio.Reader, way, host string, buf []byte) error {
	method, length := http.MethodGet, 0
	if way == "up" {
		method, length = http.MethodPut, loadSize
	}
	if _, err := fmt.Fprintf(c, "%s /load HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", method, host, length); err != nil {
		return err
	}
	if way == "up" {
		if err := give(c, buf); err != nil {
			return err
		}
	}
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", answer.Status)
	}
	return drain(r, answer.ContentLength, buf)
}
