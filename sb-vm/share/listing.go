//go:build linux

package share

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// listing is a directory that is being read. The guest's kernel opens and closes
// no directories (NO_OPENDIR_SUPPORT), so that it can read from its cache without
// asking: a request says where to go on, and the offsets are the host's own.
type listing struct {
	node *node
	fd   int
	next int64  // the offset of the first entry in rest
	buf  []byte // what getdents64 gave
	rest []byte // what of it was not passed on
	used time.Time
}

const (
	listingSize = 32 << 10
	maxListings = 32
)

// listings are those that a next request may go on with, the one used last at
// the end. They are closed when they are idle.
type listings struct {
	mu    sync.Mutex
	list  []*listing
	timer *time.Timer
}

// take is the listing of n that stands at offset, or nil.
func (l *listings) take(n *node, offset int64) *listing {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, at := range l.list {
		if at.node == n && at.next == offset {
			l.list = append(l.list[:i], l.list[i+1:]...)
			return at
		}
	}
	return nil
}

func (l *listings) put(at *listing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at.used = time.Now()
	l.list = append(l.list, at)
	if len(l.list) > maxListings {
		l.drop()
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(idle, l.sweep)
	}
}

// drop closes the one used longest ago.
func (l *listings) drop() {
	unix.Close(l.list[0].fd)
	l.list = l.list[1:]
}

func (l *listings) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.list) > 0 && time.Since(l.list[0].used) >= idle {
		l.drop()
	}
	l.timer = nil
	if len(l.list) > 0 {
		l.timer = time.AfterFunc(idle, l.sweep)
	}
}

func (l *listings) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.list) > 0 {
		l.drop()
	}
	if l.timer != nil {
		l.timer.Stop()
	}
}

// list opens n for reading at offset.
func (s *session) list(c *call, n *node, offset int64) (*listing, error) {
	if at := s.listings.take(n, offset); at != nil {
		return at, nil
	}
	p, err := s.place(n)
	if err != nil {
		return nil, err
	}
	defer s.places.done(p)
	at := &listing{node: n, next: offset}
	err = s.asOwner(c, func() (err error) {
		at.fd, err = s.reopen(p.fd, unix.O_RDONLY|unix.O_DIRECTORY)
		return err
	}, p)
	if err != nil {
		return nil, err
	}
	if offset != 0 {
		if _, err := unix.Seek(at.fd, offset, unix.SEEK_SET); err != nil {
			unix.Close(at.fd)
			return nil, err
		}
	}
	return at, nil
}

// readdir is READDIR and READDIRPLUS.
func readdir(c *call) error {
	_, offset, size := c.in.U64(), c.in.U64(), c.in.U32()
	c.in.Skip(20)
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	n, err := s.nodes.dir(c.h.Node)
	if err != nil {
		return err
	}
	at, err := s.list(c, n, int64(offset))
	if err != nil {
		return err
	}
	s.nodes.mu.Lock()
	n.listed = true
	s.nodes.mu.Unlock()
	r := dirReader{c: c, at: at, plus: c.h.Op == fusewire.Readdirplus, seen: s.look(n, at.fd)}
	if offset == 0 && r.seen.watch == nil {
		s.recheck(n, at.fd)
	}
	more, err := r.read(len(c.out) + int(min(size, fusewire.MaxData)))
	if more && err == nil {
		s.listings.put(at)
	} else {
		unix.Close(at.fd)
	}
	return err
}

// read appends entries up to a length of the reply. more is whether there is
// something to go on with.
func (r *dirReader) read(limit int) (more bool, err error) {
	for {
		e, err := r.at.peek()
		if err != nil || e.size == 0 {
			return false, err
		}
		if len(r.c.out)+r.size(e) > limit {
			return true, nil
		}
		r.add(e)
		r.at.rest = r.at.rest[e.size:]
		r.at.next = e.next
	}
}

// entry is a struct linux_dirent64.
type entry struct {
	size int // 0: there is none
	ino  uint64
	next int64
	typ  byte
	name []byte
}

// peek is the next entry, which stays until it is taken from rest.
func (l *listing) peek() (e entry, err error) {
	if len(l.rest) == 0 {
		if l.buf == nil {
			l.buf = make([]byte, listingSize)
		}
		var n int
		err := restart(func() (err error) { n, err = unix.Getdents(l.fd, l.buf); return err })
		if err != nil || n <= 0 {
			return entry{}, err
		}
		l.rest = l.buf[:n]
	}
	b := l.rest
	le := binary.LittleEndian
	e = entry{ino: le.Uint64(b), next: int64(le.Uint64(b[8:])), size: int(le.Uint16(b[16:])), typ: b[18]}
	e.name, _, _ = bytes.Cut(b[19:e.size], []byte{0})
	return e, nil
}

// dirReader appends entries to a reply.
type dirReader struct {
	c    *call
	at   *listing
	plus bool
	seen since
}

const direntSize = 24 // struct fuse_dirent without the name

func (r *dirReader) size(e entry) int {
	n := (direntSize + len(e.name) + 7) &^ 7
	if r.plus {
		n += entrySize
	}
	return n
}

// add appends e unless the guest must not see it.
func (r *dirReader) add(e entry) {
	s, dir := r.c.s, r.at.node
	own := string(e.name) == "." || string(e.name) == ".."
	ino := e.ino ^ dir.dev.index<<48
	if own {
		// Above the root there is nothing.
		ino = dir.key.Ino ^ dir.dev.index<<48
	}
	at := &spot{dir: dir, name: string(e.name), file: string(e.name), place: &place{fd: r.at.fd}}
	var st unix.Statx_t
	if !own {
		at.says = s.nodes.standingAt(dir, at.name)
		if at.says&hidden != 0 {
			return
		}
		if s.redirect(at); at.onHost != nil {
			defer s.places.done(at.place)
		}
		if r.plus || len(s.x.hidden) > 0 || len(s.x.rules.exact) > 0 {
			if s.statListed(at, &st) != nil {
				return // gone, or not for the guest
			}
			ino = s.devices.number(&st)
		}
	}
	if r.plus {
		r.addPlus(at, &st, own)
	}
	le := binary.LittleEndian
	out := le.AppendUint64(r.c.out, ino)
	out = le.AppendUint64(out, uint64(e.next))
	out = le.AppendUint32(out, uint32(len(e.name)))
	out = le.AppendUint32(out, uint32(e.typ))
	out = append(out, e.name...)
	for len(out)%8 != 0 {
		out = append(out, 0)
	}
	r.c.out = out
}

// addPlus appends the entry of what is at a spot; one that the guest cannot be
// given, as it knows too many, and the directory itself, have the number 0.
func (r *dirReader) addPlus(at *spot, st *unix.Statx_t, own bool) {
	if !own {
		out, _, err := r.c.s.entry(r.c.out, at.dir, at.name, st, r.seen)
		if err == nil {
			r.c.out = out
			return
		}
	}
	r.c.out = append(r.c.out, make([]byte, entrySize)...)
}
