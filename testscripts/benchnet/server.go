package main

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"
)

// What the server answers: a request for the load with a body of that size, every
// other with little.
const (
	loadSize    = 64 << 20 // bytes
	loadPath    = "/load"
	loadHead    = "HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n"
	smallAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n0123456789012345678901234567890123456789"
	maxHead     = 4096 // bytes of a request
)

// serverPort is where it listens.
const serverPort = 9000

// server is an HTTP server that costs little: it looks at the heads of requests,
// and takes bodies and gives them without a look.
type server struct {
	*poller
	listener int
	peers    map[int]*peer
	buf      []byte
}

// peer is a connection.
type peer struct {
	head   []byte // of a request, as far as it has come
	take   int    // bytes of its body that are still to come
	answer string // to be sent then
	give   int    // bytes of the answer's body that are still to be sent
}

func serve(host string) error {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	p, err := newPoller()
	if err != nil {
		return err
	}
	s := &server{poller: p, peers: map[int]*peer{}, buf: make([]byte, 1<<20)}
	if s.listener, err = socket(); err != nil {
		return err
	}
	if err := unix.Bind(s.listener, &unix.SockaddrInet4{Port: serverPort, Addr: addr.As4()}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Listen(s.listener, 4096); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := s.add(s.listener); err != nil {
		return err
	}
	fmt.Println("up")
	for {
		events, err := s.wait()
		if err != nil {
			return err
		}
		for _, e := range events {
			fd := int(e.Fd)
			if fd == s.listener {
				err = s.accept()
			} else if s.serve(fd, s.peers[fd]) != nil {
				delete(s.peers, fd)
				unix.Close(fd)
			}
			if err != nil {
				return err
			}
		}
	}
}

func (s *server) accept() error {
	for {
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			s.peers[fd] = &peer{}
			if err := s.add(fd); err != nil {
				return err
			}
		case unix.EAGAIN:
			return nil
		case unix.ECONNABORTED, unix.EINTR:
		default:
			return fmt.Errorf("accept: %w", err)
		}
	}
}

// serve does what can be done about a connection now. Its error is the end of the
// connection.
func (s *server) serve(fd int, p *peer) error {
	for {
		if err := s.reply(fd, p); err != nil {
			return later(err)
		}
		n, err := 0, error(nil)
		if p.take > 0 {
			n, err = discard(fd, p.take)
			p.take -= n
		} else {
			n, err = unix.Read(fd, s.buf[:maxHead])
			p.heard(s.buf[:max(0, n)])
		}
		switch {
		case err != nil:
			return later(err)
		case n == 0:
			return io.EOF
		}
	}
}

// later is nil if there is more to be done when something has changed.
func later(err error) error {
	if err == unix.EAGAIN {
		return nil
	}
	return err
}

// reply sends the answer to a request that was taken whole.
func (s *server) reply(fd int, p *peer) error {
	if p.take > 0 {
		return nil
	}
	if p.answer != "" {
		if _, err := unix.Write(fd, []byte(p.answer)); err != nil {
			return err
		}
		p.answer = ""
	}
	for p.give > 0 {
		n, err := unix.Write(fd, s.buf[:min(p.give, len(s.buf))])
		if err != nil {
			return err
		}
		p.give -= n
	}
	return nil
}

// heard looks for the end of a request's head. What follows it is the beginning of
// its body.
func (p *peer) heard(b []byte) {
	p.head = append(p.head, b...)
	end := bytes.Index(p.head, []byte("\r\n\r\n"))
	if end < 0 {
		return
	}
	p.answer = smallAnswer
	switch {
	case bytes.HasPrefix(p.head, []byte("PUT "+loadPath+" ")):
		p.take = loadSize - (len(p.head) - end - 4)
	case bytes.HasPrefix(p.head, []byte("GET "+loadPath+" ")):
		p.answer, p.give = loadHead, loadSize
	}
	p.head = p.head[:0]
}
