package http1

import (
	"bufio"
	"bytes"
	"io"

	"sb/lib/reason"
)

// Stream hands out a client's requests as they came, for another reader of HTTP/1
// to read: each when its whole head was read and judged, its body as far as its
// framing is plain. What it hands out, any reader takes for the same requests.
type Stream struct {
	from  io.Reader
	judge func(*Request) error // of each head; its error is Read's, for good
	buf   []byte               // read, and not handed out
	open  int                  // bytes at the beginning of buf that may be handed out
	left  int64                // bytes behind them that are of a body or chunk, whatever they are
	next  func() error         // reads on, when nothing is open

	broken bool
}

// NewStream reads requests from a client.
func NewStream(from io.Reader, judge func(*Request) error) *Stream {
	s := &Stream{from: from, judge: judge}
	s.next = s.head
	return s
}

// Read implements io.Reader. An error of the client's that is a timeout leaves it as
// it was. Refused ends it.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.open == 0 && s.left == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	if s.open > 0 {
		n := copy(p, s.buf[:s.open])
		s.open -= n
		s.drop(n)
		return n, nil
	}
	p = p[:min(s.left, int64(len(p)))]
	n, err := 0, error(nil)
	if len(s.buf) > 0 {
		n = copy(p, s.buf)
		s.drop(n)
	} else {
		n, err = s.from.Read(p)
	}
	s.left -= int64(n)
	if n > 0 {
		err = nil // it comes again
	}
	return n, err
}

// Broken says whether what was refused is a body, the beginning of which was handed
// out, and not the next request.
func (s *Stream) Broken() bool { return s.broken }

// Raw hands out everything from now on as it comes: the server has switched to
// another protocol.
func (s *Stream) Raw() {
	s.next = func() error {
		s.left = 1 << 62
		return nil
	}
}

func (s *Stream) drop(n int) {
	s.buf = s.buf[n:]
	if len(s.buf) == 0 {
		s.buf = nil
	}
}

// more reads some bytes behind those that are there. Without any, it is the error.
func (s *Stream) more() error {
	if free := cap(s.buf) - len(s.buf); free < 512 {
		s.buf = append(make([]byte, 0, 2*len(s.buf)+2048), s.buf...)
	}
	n, err := s.from.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	if n > 0 {
		return nil
	}
	return err
}

// head reads and judges a request's head.
func (s *Stream) head() error {
	size, err := s.until(MaxHead, headEnd)
	switch {
	case err == io.EOF && len(s.buf) == 0:
		return io.EOF
	case err != nil:
		return err
	}
	req, err := Read(bufio.NewReader(bytes.NewReader(s.buf[:size])))
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = refuse(reason.HTTPMalformed) // it had an end of another kind
	}
	if err == nil {
		err = s.judge(req)
	}
	if err != nil {
		return s.refused(err)
	}
	s.open = size
	switch {
	case req.chunked:
		s.next = s.chunk
	case req.Upgrade != "":
		s.left, s.next = req.length, s.early
	default:
		s.left = req.length
	}
	return nil
}

// early waits for the answer to an upgrade, after which Raw is called or the stream
// ends. What comes before it would be read in two ways.
func (s *Stream) early() error {
	if len(s.buf) == 0 {
		if err := s.more(); err != nil {
			return err
		}
	}
	return s.refused(refuse(reason.HTTPUpgrade))
}

// headEnd is where a head ends that begins b: behind its first empty line, of
// whatever spelling; 0 if it does not yet.
func headEnd(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0
		}
		from += i + 1
		if line := bytes.TrimPrefix(b[from:], []byte("\r")); len(line) > 0 && line[0] == '\n' {
			return len(b) - len(line) + 1
		}
	}
}

// until reads until end finds one within most bytes, and returns it.
func (s *Stream) until(most int, end func([]byte) int) (int, error) {
	for {
		if n := end(s.buf); n > 0 && n <= most {
			return n, nil
		}
		if len(s.buf) > most {
			return 0, s.refused(refuse(reason.HTTPTooLong))
		}
		if err := s.more(); err != nil {
			return 0, err
		}
	}
}

// refused has nothing more be handed out.
func (s *Stream) refused(err error) error {
	s.next = func() error { return err }
	return err
}

func lineEnd(b []byte) int { return bytes.IndexByte(b, '\n') + 1 }

// chunk reads the line before a chunk's bytes.
func (s *Stream) chunk() error {
	size, err := s.until(64, lineEnd)
	if err != nil {
		return s.inBody(err)
	}
	n, _, err := chunkSize(bufio.NewReader(bytes.NewReader(s.buf[:size])))
	if err != nil {
		return s.breaks(err)
	}
	s.open = size
	if s.left, s.next = n, s.chunkEnd; n == 0 {
		s.next = s.trailers
	}
	return nil
}

// chunkEnd reads the line behind a chunk's bytes.
func (s *Stream) chunkEnd() error {
	size, err := s.until(2, lineEnd)
	if err != nil {
		return s.inBody(err)
	}
	if !bytes.Equal(s.buf[:size], []byte("\r\n")) {
		return s.breaks(refuse(reason.HTTPFraming))
	}
	s.open, s.next = size, s.chunk
	return nil
}

// trailers reads what follows the last chunk.
func (s *Stream) trailers() error {
	size, err := s.until(MaxHead, func(b []byte) int {
		if bytes.HasPrefix(b, []byte("\r\n")) {
			return 2
		}
		return headEnd(b)
	})
	if err != nil {
		return s.inBody(err)
	}
	if err := trailers(io.Discard, bufio.NewReader(bytes.NewReader(s.buf[:size]))); err != nil {
		return s.breaks(err)
	}
	s.open, s.next = size, s.head
	return nil
}

// breaks is refused in the middle of a body.
func (s *Stream) breaks(err error) error {
	s.broken = true
	return s.refused(err)
}

// inBody is the error of a body that is not whole.
func (s *Stream) inBody(err error) error {
	switch {
	case err == refuse(reason.HTTPTooLong):
		return s.breaks(refuse(reason.HTTPFraming))
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}
