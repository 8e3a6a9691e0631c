package session

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
)

// greeting begins the line by which a host takes the stream, and by which the
// guest answers with the same nonce. The stream itself has no beginning that a
// guest could see: it is a device, and one host may follow another on it. What
// is left of the one before is thrown away up to the answer.
const greeting = "sb-session "

// greet takes the stream for this host.
func greet(conn io.ReadWriter) error {
	nonce := rand.Text()
	if _, err := io.WriteString(conn, greeting+nonce+"\n"); err != nil {
		return err
	}
	want := []byte(greeting + nonce + "\n")
	// Byte by byte: what follows belongs to the session.
	var window []byte
	var b [1]byte
	for !bytes.HasSuffix(window, want) {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		if window = append(window, b[0]); len(window) > 2*len(want) {
			window = append(window[:0], window[len(window)-len(want):]...)
		}
	}
	return nil
}

// awaitHost reads up to the next greeting and returns its nonce.
func awaitHost(r *bufio.Reader) (string, error) {
	for {
		line, err := r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return "", err
		}
		if i := bytes.LastIndex(line, []byte(greeting)); i >= 0 {
			nonce := bytes.TrimSpace(line[i+len(greeting):])
			if len(nonce) > 0 && len(nonce) <= 64 && isText(nonce) {
				return string(nonce), nil
			}
		}
	}
}

// isText reports whether b could be rand.Text.
func isText(b []byte) bool {
	for _, c := range b {
		if !('A' <= c && c <= 'Z' || '2' <= c && c <= '7') {
			return false
		}
	}
	return true
}

// untilGoAway is the stream as one host's session: it ends where the host says
// that it goes away, or where what comes is no frame of yamux's, as the greeting
// of another host.
type untilGoAway struct {
	r    *bufio.Reader
	w    io.Writer
	left int  // bytes of the frame that is being read
	last bool // no frame follows it
}

// From yamux's specification: the header of a frame.
const (
	yamuxHeader = 12
	yamuxData   = 0
	yamuxPing   = 2
	yamuxSYN    = 1 // a flag: it opens a stream
	yamuxGoAway = 3
)

func (u *untilGoAway) Read(b []byte) (int, error) {
	if u.left == 0 {
		if err := u.next(); err != nil {
			return 0, err
		}
	}
	n, err := u.r.Read(b[:min(len(b), u.left)])
	u.left -= n
	return n, err
}

// next looks at the header of the frame that follows.
func (u *untilGoAway) next() error {
	if u.last {
		return io.EOF
	}
	head, err := u.r.Peek(yamuxHeader)
	if err != nil {
		return err
	}
	typ := head[1]
	u.last = head[0] != 0 || typ >= yamuxGoAway
	if head[0] != 0 || typ > yamuxGoAway {
		return io.EOF
	}
	u.left = yamuxHeader
	if typ == yamuxData {
		u.left += int(binary.BigEndian.Uint32(head[8:]))
	}
	return nil
}

func (u *untilGoAway) Write(b []byte) (int, error) { return u.w.Write(b) }

func (u *untilGoAway) Close() error { return nil }

// replies is the guest's side of the stream, as far as it is about streams that
// this host has opened. A ping or a new stream of the guest's is dropped: yamux
// answers them, and as long as the guest does not read, it holds each answer.
type replies struct {
	io.ReadWriteCloser
	r    *bufio.Reader
	left int // bytes of the frame that is being read
}

func (p *replies) Read(b []byte) (int, error) {
	for p.left == 0 {
		head, err := p.r.Peek(yamuxHeader)
		if err != nil {
			return 0, err
		}
		p.left = yamuxHeader
		if head[1] == yamuxData {
			p.left += int(binary.BigEndian.Uint32(head[8:]))
		}
		if head[1] == yamuxPing || binary.BigEndian.Uint16(head[2:])&yamuxSYN != 0 {
			_, err := p.r.Discard(p.left)
			if p.left = 0; err != nil {
				return 0, err
			}
		}
	}
	n, err := p.r.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, err
}
