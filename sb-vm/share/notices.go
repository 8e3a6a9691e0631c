//go:build linux

package share

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// notices calls back what the guest was told and what is no longer so.
//
// It does not matter who made a change: what the host has now is compared with
// what the guest was told last, so the guest's own changes, which it was told
// in the replies, call nothing back.
type notices struct {
	session *session
	dirty   map[doubt]bool // true: certain for once. nodes.mu guards it
	wake    chan struct{}
	window  chan struct{} // holds a token for each notification without an Ack
	crowded atomic.Bool
}

// doubt is a name in a directory whose state must be compared, or with an empty
// name the directory itself.
type doubt struct {
	dir  *node
	name string
}

// settling is how long doubts are collected: a change often comes as several
// events.
const settling = 5 * time.Millisecond

func newNotices(s *session) *notices {
	return &notices{
		session: s, dirty: map[doubt]bool{},
		wake: make(chan struct{}, 1), window: make(chan struct{}, fusewire.AckWindow),
	}
}

// check puts a name in doubt. The caller holds nodes.mu.
func (n *notices) check(dir *node, name string) {
	if name == "" && !dir.told {
		return
	}
	if d := (doubt{dir, name}); !n.dirty[d] {
		n.dirty[d] = false
	}
	n.ring()
}

// maxUnknown bounds how many names that the guest does not know are in doubt.
const maxUnknown = 4096

// checkUnknown is check for a name that came to be in dir and that the guest
// does not know, unless it is just making it.
func (n *notices) checkUnknown(dir *node, name string) {
	if !dir.told && !dir.listed {
		return
	}
	if len(n.dirty) > maxUnknown {
		n.force(dir)
		return
	}
	n.dirty[doubt{dir, name}] = false
	n.ring()
}

// force says that the guest's listing of dir is out of date for certain. The
// caller holds nodes.mu.
func (n *notices) force(dir *node) {
	n.dirty[doubt{dir, ""}] = true
	n.ring()
}

func (n *notices) ring() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// crowd says that the guest knows nearly as many files as it may.
func (n *notices) crowd() {
	if n.crowded.CompareAndSwap(false, true) {
		n.ring()
	}
}

// run settles doubts until the session ends.
func (n *notices) run() {
	t := time.NewTimer(0)
	<-t.C
	for {
		select {
		case <-n.wake:
		case <-n.session.done:
			return
		}
		t.Reset(settling)
		select {
		case <-t.C:
		case <-n.session.done:
			return
		}
		n.session.nodes.mu.Lock()
		dirty := n.dirty
		n.dirty = map[doubt]bool{}
		n.session.nodes.mu.Unlock()
		for d, certain := range dirty {
			n.settle(d, certain)
		}
		if n.crowded.Load() {
			n.thin()
			n.crowded.Store(false)
		}
	}
}

// settle compares a name with what the guest was told of it.
func (n *notices) settle(d doubt, certain bool) {
	s := n.session
	if certain {
		s.nodes.mu.Lock()
		d.dir.told, d.dir.listed = false, false
		s.nodes.mu.Unlock()
		n.invalInode(d.dir.id)
		return
	}
	s.nodes.mu.Lock()
	changes, changing := d.dir.changes, d.dir.changing
	s.nodes.mu.Unlock()
	st, err := n.look(d)
	s.nodes.mu.Lock()
	var inode *node
	entry := false
	if d.name == "" {
		inode = n.compare(d.dir, &st, err)
	} else if changing > 0 || changes != d.dir.changes {
		// The guest is at it itself: once more, a little later.
		n.dirty[d] = false
		n.ring()
	} else {
		inode, entry = n.compareName(d, &st, err)
	}
	s.nodes.mu.Unlock()
	if inode != nil {
		n.invalInode(inode.id)
	}
	if entry {
		n.invalEntry(d.dir.id, d.name)
	}
}

// errUnknown is a state that could not be found out.
var errUnknown = errors.New("unknown")

// look is the state of what is in doubt now.
func (n *notices) look(d doubt) (st unix.Statx_t, err error) {
	s := n.session
	p, err := s.place(d.dir)
	if err != nil {
		return st, errUnknown
	}
	defer s.places.done(p)
	if d.name == "" {
		return st, statFD(p.fd, &st)
	}
	if err = statAt(p.fd, d.name, &st); err != nil && !gone(err) {
		err = errUnknown
	}
	return st, err
}

// compare is what node to call back the attributes and the data of, if any.
func (n *notices) compare(k *node, st *unix.Statx_t, err error) *node {
	if !k.told || err == nil && stampOf(st) == k.stamp {
		return nil
	}
	k.told, k.listed = false, false
	return k
}

// compareName is compare for a name, which may have to be called back as well.
func (n *notices) compareName(d doubt, st *unix.Statx_t, err error) (inode *node, entry bool) {
	s := n.session
	kid := d.dir.kids[d.name]
	if kid == nil && err == nil {
		entry = d.dir.watch.isAbsent(d.name)
		d.dir.watch.present(d.name)
		if !d.dir.told && !d.dir.listed {
			return nil, entry
		}
		d.dir.told, d.dir.listed = false, false
		return d.dir, entry // its listing does not have the name
	}
	if kid == nil {
		return nil, false
	}
	if err == errUnknown {
		kid.told = false
		return kid, true
	}
	if err != nil || !s.same(kid, st) {
		s.nodes.unname(alias{d.dir, d.name})
		s.places.lose(kid)
		kid.told = false
		return kid, true
	}
	return n.compare(kid, st, err), false
}

// thin asks the guest to let go of some of the files it knows, so that it can
// know others.
func (n *notices) thin() {
	var some []doubt
	t := n.session.nodes
	t.mu.Lock()
	for _, k := range t.byID {
		if len(some) >= t.max/8 {
			break
		}
		if len(k.names) > 0 && len(k.kids) == 0 && len(k.handles) == 0 {
			some = append(some, doubt{k.names[0].parent, k.names[0].name})
		}
	}
	t.mu.Unlock()
	for _, d := range some {
		n.invalEntry(d.dir.id, d.name)
	}
}

func (n *notices) invalInode(id uint64) {
	b := notice(fusewire.InvalInode, 24)
	b = binary.LittleEndian.AppendUint64(b, id)
	n.send(append(b, make([]byte, 16)...)) // from 0 to the end
}

func (n *notices) invalEntry(dir uint64, name string) {
	if len(name) > maxName {
		return // the guest was never told of it
	}
	b := notice(fusewire.InvalEntry, 16+len(name)+1)
	b = binary.LittleEndian.AppendUint64(b, dir)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	n.send(append(append(b, name...), 0))
}

// notice is the header of a notification with a body of size bytes.
func notice(code uint32, size int) []byte {
	b := make([]byte, 0, fusewire.OutHeader+size)
	b = binary.LittleEndian.AppendUint32(b, uint32(fusewire.OutHeader+size))
	b = binary.LittleEndian.AppendUint32(b, code)
	return binary.LittleEndian.AppendUint64(b, 0) // unique: no request's
}

func (n *notices) send(b []byte) {
	select {
	case n.window <- struct{}{}:
		n.session.write(b)
	case <-n.session.done:
	}
}

// ack takes an Ack.
func (n *notices) ack() error {
	select {
	case <-n.window:
		return nil
	default:
		return fusewire.ErrMalformed
	}
}
