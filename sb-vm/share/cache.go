//go:build linux

package share

import (
	"time"

	"golang.org/x/sys/unix"
)

// How long the guest's kernel may believe what it was told. The short time is
// half of what is promised, since one thing can be asked after another: a
// directory's attributes, then its listing. What is watched is called back when
// it changes, so the long time matters only for changes that make no event: a
// file written through a mapping, until its writer closes it, and one written by
// a hard link made since.
const (
	shortTTL = 500 * time.Millisecond
	longTTL  = 10 * time.Minute
)

// ttls are the two timeouts of an entry: of the name, and of the attributes.
type ttls struct{ entry, attr time.Duration }

// since is a state of a directory's watch, taken before looking into the
// directory: if no event came in between, what was seen stands until one comes.
type since struct {
	fd    int // of the directory
	watch *watch
	seq   uint64
}

// still tells whether nothing has happened since. The caller holds nodes.mu.
func (q since) still() bool {
	return q.watch != nil && !q.watch.ended && q.watch.seq == q.seq
}

// look begins a look into dir, whose descriptor is fd.
func (s *session) look(dir *node, fd int) since {
	s.nodes.mu.Lock()
	w := dir.watch
	if w == nil {
		w = s.watcher.add(dir, fd)
	}
	q := since{fd: fd, watch: w}
	if w != nil {
		q.seq = w.seq
	}
	s.nodes.mu.Unlock()
	return q
}

// lookAt is look for a spot. Nothing watches the store: what is there changes by
// the guest alone.
func (s *session) lookAt(at *spot) since {
	if at.onHost != nil {
		return since{fd: at.fd}
	}
	return s.look(at.dir, at.fd)
}

// tell records that the guest is told st of n, which was seen in parent, and
// says for how long it may believe it. The caller holds nodes.mu. It must come
// before the reply: what happens from here on is called back.
func (s *session) tell(n, parent *node, st *unix.Statx_t, seen since) ttls {
	n.told, n.stamp = true, stampOf(st)
	t := ttls{shortTTL, shortTTL}
	if !seen.still() {
		return t
	}
	t.entry = longTTL
	// A directory's own watch says what changes in it; a file with several
	// names, or with another file mounted on it, may change elsewhere.
	if !n.isDir() && st.Nlink == 1 && n.mnt == parent.mnt && !n.stamp.fresh(time.Now()) {
		t.attr = longTTL
	}
	return t
}

// tellAttr is tell for n alone: seen is in n's parent, or in n itself if it is a
// directory.
func (s *session) tellAttr(n *node, st *unix.Statx_t, seen since) time.Duration {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	n.told, n.stamp = true, stampOf(st)
	alone := n.isDir() || st.Nlink == 1 && len(n.names) > 0 && n.mnt == n.names[0].parent.mnt
	if seen.still() && alone && !n.stamp.fresh(time.Now()) {
		return longTTL
	}
	return shortTTL
}

// absent records that the guest is told that name is not in dir, and says for
// how long it may believe it.
func (s *session) absent(name string, seen since) time.Duration {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	if seen.still() && seen.watch.addAbsent(name) {
		return longTTL
	}
	return shortTTL
}

// changing says that the guest is about to change the file n, whose attributes
// its kernel then asks for again by itself: there will be nothing to call back.
func (s *session) changing(n *node) {
	s.nodes.mu.Lock()
	n.told = false
	s.nodes.mu.Unlock()
}

// changingName is changing for the name at a spot, until it is left.
func (s *session) changingName(at *spot) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	at.changing = true
	at.dir.changing++
	at.dir.told = false
	if n := at.dir.kids[at.name]; n != nil {
		n.told = false
	}
	at.dir.watch.present(at.name)
}

// keep tells whether the guest may go on using the data it has of n, now that it
// opens it again in the state st.
func (s *session) keep(n *node, st *unix.Statx_t) bool {
	now := stampOf(st)
	fresh := now.fresh(time.Now())
	now.ctime = 0 // of no matter to the data
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	same := n.content == now
	n.content = now
	if fresh {
		n.content = stamp{mtime: -1} // it may change yet and look the same
	}
	return same
}

// recheck has the guest's copy of a listing thrown away once a further change
// would show in the directory's times, if one would not yet. A watched directory
// needs none of this.
func (s *session) recheck(n *node, fd int) {
	var st unix.Statx_t
	if statFD(fd, &st) != nil || !stampOf(&st).fresh(time.Now()) {
		return
	}
	time.AfterFunc(2*tick, func() {
		s.nodes.mu.Lock()
		defer s.nodes.mu.Unlock()
		s.notices.force(n)
	})
}
