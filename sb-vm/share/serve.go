//go:build linux

package share

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// server is one Serve.
type server struct {
	x       *export
	stream  stream
	in      *bufio.Reader
	buffers *buffers
	calls   chan struct{} // a token for each request being worked on
	ending  sync.WaitGroup
	session *session // since the last INIT
	ended   chan error

	faultMu sync.Mutex
	fault   error // of a request that was found malformed later
}

// maxCalls is how many requests are worked on at the same time. What waits for a
// slow file system takes one each; the guest has to have more threads than this
// to be kept waiting for the others.
const maxCalls = 512

// Serve answers the requests on conn for the directory e until the stream ends,
// which is no error, or ctx does, or a message comes that no kernel sends, which
// ends the share. conn is one end of a pair of stream sockets; Serve owns it and
// closes it. When it returns nothing that it began goes on, so a request that the
// host's file system does not answer delays it. Several may run in one process;
// they share nothing but its descriptors.
//
// A guest that mounts the share anew begins anew: what the former mount had open
// is closed.
func Serve(ctx context.Context, conn *os.File, e Export) error {
	x, err := newExport(e)
	if err != nil {
		conn.Close()
		return err
	}
	defer x.close()
	if err := x.serve(ctx, conn); err != nil {
		return fmt.Errorf("share %s: %w", e.Root.Name(), err)
	}
	return nil
}

func (x *export) serve(ctx context.Context, conn *os.File) error {
	stream, err := newStream(conn)
	if err != nil {
		return fmt.Errorf("take the stream: %w", err)
	}
	defer stream.close()
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { stream.stop(); close(stopped) })
	s := &server{
		x: x, stream: stream, in: bufio.NewReaderSize(stream, 64<<10),
		buffers: newBuffers(), calls: make(chan struct{}, maxCalls), ended: make(chan error, 1),
	}
	err = s.run()
	stream.stop() // whoever waits to write a reply
	if s.session != nil {
		s.session.end()
	}
	s.ending.Wait()
	if !stop() {
		<-stopped // it used stream
		return context.Cause(ctx)
	}
	return err
}

// run reads messages until the stream ends.
//
// A request is worked on where it was read if nothing else waits: that saves two
// switches of threads, which cost more than most requests. One that then takes
// long leaves the reading to another goroutine.
func (s *server) run() error {
	go s.serve()
	return <-s.ended
}

// handover is how long a request may keep the next one from being read.
const handover = time.Millisecond

func (s *server) serve() {
	next := time.AfterFunc(time.Hour, s.serve)
	next.Stop()
	for {
		h, body, err := s.read()
		if err == nil {
			var c *call
			if c, err = s.take(h, body); err != nil {
				err = describe(h, err)
			} else if c != nil && s.in.Buffered() == 0 && operations[c.h.Op].quick {
				next.Reset(handover)
				c.work()
				if !next.Stop() {
					return
				}
			} else if c != nil {
				go c.work()
			}
		}
		if err != nil {
			s.ended <- s.reason(err)
			return
		}
	}
}

// reason is why the share ended, when reading ended with err.
func (s *server) reason(err error) error {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	if over(err) {
		return nil
	}
	return err
}

func describe(h fusewire.Header, err error) error {
	return fmt.Errorf("request %d with opcode %d and %d bytes: %w", h.Unique, h.Op, h.Len, err)
}

// malformed ends the share because of a request that no kernel sends.
func (s *server) malformed(c *call) {
	s.faultMu.Lock()
	if s.fault == nil {
		s.fault = describe(c.h, fusewire.ErrMalformed)
	}
	s.faultMu.Unlock()
	s.stream.stop()
}

// over tells an end of the stream between two messages, from either side.
func over(err error) bool { return err == io.EOF || err == unix.ECONNRESET }

// read reads one message. What follows the header is in a buffer that the caller
// gives back.
func (s *server) read() (h fusewire.Header, body *buffer, err error) {
	var head [fusewire.InHeader]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = fmt.Errorf("the stream ended within a message's header")
		}
		return h, nil, err
	}
	if h, err = fusewire.ParseHeader(head[:]); err != nil {
		return h, nil, fmt.Errorf("a header gives %d bytes for opcode %d: %w", h.Len, h.Op, err)
	}
	body = s.buffers.get(int(h.Len) - fusewire.InHeader)
	if _, err := io.ReadFull(s.in, body.b); err != nil {
		s.buffers.put(body)
		if over(err) || err == io.ErrUnexpectedEOF {
			err = fmt.Errorf("the stream ended within a message of %d bytes", h.Len)
		}
		return h, nil, err
	}
	return h, body, nil
}

// take handles a message, or returns the request to work on.
func (s *server) take(h fusewire.Header, body *buffer) (*call, error) {
	in := fusewire.NewIn(body.b)
	if s.session != nil && h.Op < uint32(len(operations)) && operations[h.Op].run != nil {
		return s.session.begin(h, in, body), nil
	}
	defer s.buffers.put(body)
	if h.Op == fusewire.Init {
		return nil, s.init(h, in)
	}
	if s.session == nil {
		return nil, fmt.Errorf("it comes before INIT: %w", fusewire.ErrMalformed)
	}
	switch h.Op {
	case fusewire.Forget, fusewire.BatchForget:
		return nil, s.session.forgetting(h, in)
	case fusewire.Interrupt:
		unique := in.U64()
		if err := in.End(); err != nil {
			return nil, err
		}
		s.session.interrupt(unique)
	case fusewire.Ack:
		if err := in.End(); err != nil {
			return nil, err
		}
		return nil, s.session.notices.ack()
	default:
		(&call{s: s.session, h: h}).reply(unix.ENOSYS)
	}
	return nil, nil
}

// The oldest protocol spoken: Linux 5.4's.
const (
	protoMajor    = 7
	protoMinor    = 38
	protoMinorMin = 31
)

// init begins a session.
func (s *server) init(h fusewire.Header, in fusewire.In) error {
	major, minor, readahead, flags := in.U32(), in.U32(), in.U32(), in.U32()
	if minor >= 36 {
		in.Skip(48)
	}
	if err := in.End(); err != nil {
		return err
	}
	if s.session != nil {
		s.session.kill()
		s.ending.Go(s.session.end)
		s.session = nil
	}
	session, err := newSession(s)
	if err != nil {
		return err
	}
	c := &call{s: session, h: h, out: make([]byte, fusewire.OutHeader)}
	s.session = session
	if major != protoMajor || minor < protoMinorMin || flags&fusewire.NoOpendir == 0 {
		c.reply(unix.EPROTO)
		return fmt.Errorf("the guest speaks FUSE %d.%d with flags %#x, this is %d.%d to %d.%d",
			major, minor, flags, protoMajor, protoMinorMin, protoMajor, protoMinor)
	}
	c.out = appendInit(c.out, min(minor, protoMinor), readahead, flags)
	c.reply(nil)
	return nil
}
