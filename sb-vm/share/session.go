//go:build linux

package share

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// session is one mount of the share, from its INIT on.
type session struct {
	server   *server
	x        *export
	nodes    *nodes
	handles  *handles
	places   *places
	listings listings
	devices  *devices
	moves    *moves
	exactly  exactly
	watcher  *watcher
	notices  *notices

	writing sync.Mutex // of a message, and of dead
	dead    bool       // nothing more may be written
	done    chan struct{}
	working sync.WaitGroup

	widening sync.Mutex // of a mode, for the guest's root

	callsMu sync.Mutex
	calls   map[uint64]*call
}

func newSession(server *server) (*session, error) {
	x := server.x
	s := &session{
		server: server, x: x, moves: newMoves(), places: newPlaces(x.limits.places),
		devices: &devices{seen: map[uint64]*device{}}, watcher: newWatcher(x.limits.watches),
		done: make(chan struct{}), calls: map[uint64]*call{},
	}
	dev, err := s.devices.of(&x.rootStat, x.root, "")
	if err != nil {
		return nil, err
	}
	if x.store != nil {
		var st unix.Statx_t
		if err := statFD(x.store.fd, &st); err != nil {
			return nil, err
		}
		if _, err := s.devices.of(&st, x.store.fd, ""); err != nil {
			return nil, err
		}
	}
	s.nodes = newNodes(x, keyOf(&x.rootStat, dev), dev)
	s.handles = &handles{byID: map[uint64]*handle{}, max: x.limits.handles, nodes: s.nodes}
	s.notices = newNotices(s)
	if f := s.watcher.file; f != nil {
		s.working.Go(func() { s.watching(f) })
	}
	s.working.Go(s.notices.run)
	return s, nil
}

// kill makes the session silent: its guest is gone.
func (s *session) kill() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.dead {
		s.dead = true
		close(s.done)
	}
}

// end waits until nothing of the session goes on and closes all it had open.
func (s *session) end() {
	s.kill()
	s.nodes.mu.Lock()
	f := s.watcher.file
	s.watcher.file = nil
	s.nodes.mu.Unlock()
	if f != nil {
		f.Close()
	}
	s.working.Wait()
	s.handles.close()
	s.places.close()
	s.listings.close()
}

// write writes one message. Where the stream is broken the reader finds out.
func (s *session) write(b []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.dead {
		return
	}
	if _, err := s.server.stream.Write(b); err != nil {
		s.server.stream.stop()
	}
}

// What is agreed on with the guest's kernel. Not among it, on purpose: locks
// (they are the guest's own), splicing (there is a stream in between), caching
// of writes (the host would see them late), POSIX ACLs, submounts, export; and
// leaving it to the kernel when to read directories with their entries' attributes
// (READDIRPLUS_AUTO), which it does not do for programs that list a directory
// first and then ask about each name, as most do.
const wanted = fusewire.AsyncRead | fusewire.AtomicTrunc | fusewire.BigWrites |
	fusewire.AutoInvalData | fusewire.DoReaddirplus | fusewire.AsyncDIO |
	fusewire.ParallelDirops | fusewire.MaxPages | fusewire.CacheSymlinks |
	fusewire.KillprivV2 | fusewire.NoOpendir

// appendInit appends a struct fuse_init_out.
func appendInit(b []byte, minor, readahead, flags uint32) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, protoMajor)
	b = le.AppendUint32(b, minor)
	b = le.AppendUint32(b, readahead)
	b = le.AppendUint32(b, flags&wanted)
	b = le.AppendUint16(b, 64) // max_background
	b = le.AppendUint16(b, 48) // congestion_threshold
	b = le.AppendUint32(b, fusewire.MaxData)
	b = le.AppendUint32(b, 1)                    // time_gran: ns
	b = le.AppendUint16(b, fusewire.MaxData>>12) // max_pages
	return append(b, make([]byte, 2+4+7*4)...)
}

// call is a request being worked on.
type call struct {
	s    *session
	h    fusewire.Header
	in   fusewire.In
	body *buffer
	out  []byte  // the reply, beginning with room for its header
	big  *buffer // out's, if it is one of the bounded buffers
	undo func()  // takes back what the guest will not hear of

	answered  atomic.Bool
	impatient *time.Timer // after an INTERRUPT; callsMu guards it
}

// begin is the request of a message, which it waits to have a place for.
func (s *session) begin(h fusewire.Header, in fusewire.In, body *buffer) *call {
	c := &call{s: s, h: h, in: in, body: body, out: make([]byte, fusewire.OutHeader, 256)}
	s.server.calls <- struct{}{}
	s.working.Add(1)
	s.callsMu.Lock()
	s.calls[h.Unique] = c
	s.callsMu.Unlock()
	return c
}

// work answers the request.
func (c *call) work() {
	s := c.s
	c.reply(c.run())
	s.finish(c)
	s.server.buffers.put(c.body)
	s.server.buffers.put(c.big)
	<-s.server.calls
	s.working.Done()
}

func (s *session) finish(c *call) {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	if s.calls[c.h.Unique] == c {
		delete(s.calls, c.h.Unique)
	}
	if c.impatient != nil {
		c.impatient.Stop()
	}
}

// reply answers with what stands in out, or with an error. A malformed request
// ends the share.
func (c *call) reply(err error) {
	if err == fusewire.ErrMalformed {
		c.s.server.malformed(c)
		return
	}
	if !c.answered.CompareAndSwap(false, true) {
		if c.undo != nil && err == nil {
			c.undo()
		}
		return
	}
	c.s.write(c.head(err))
}

// head fills in the header of the reply.
func (c *call) head(err error) []byte {
	out := c.out
	if err != nil {
		out = make([]byte, fusewire.OutHeader)
	}
	le := binary.LittleEndian
	le.PutUint32(out, uint32(len(out)))
	le.PutUint32(out[4:], uint32(-int32(errno(err))))
	le.PutUint64(out[8:], c.h.Unique)
	return out
}

// patience is how long an interrupted request may still take before the guest
// is told so: its process cannot be killed until it has an answer.
const patience = 2 * time.Second

// interrupt is called when a process of the guest got a signal while it waited
// for a request. Most are answered at once; one that is not, because a file
// system of the host hangs, is given up if it does not matter what becomes of it.
func (s *session) interrupt(unique uint64) {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	c := s.calls[unique]
	if c == nil || c.impatient != nil || !operations[c.h.Op].canLeave {
		return
	}
	c.impatient = time.AfterFunc(patience, func() {
		if c.answered.CompareAndSwap(false, true) {
			s.write((&call{s: s, h: c.h}).head(unix.EINTR))
		}
	})
}
