//go:build linux

package share

import (
	"container/list"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// trust is how long an open directory is taken to lie where it lay. The host
// may move it out of the share; after this time it is looked for again.
const trust = time.Second

// idle is how long a directory that is not used stays open: an open one keeps
// what was deleted on disk, and a file system from being unmounted.
const idle = 2 * time.Second

// place is an O_PATH descriptor of a node's file.
type place struct {
	fd   int
	refs int // users, and one for the cache
	node *node
	own  bool // it lies in the store

	checked time.Time // when it was last found by its path
	used    time.Time
	elem    *list.Element // in the cache, else nil
}

// places are the directories that are open for resolving, the one used last in
// front.
type places struct {
	mu     sync.Mutex
	byNode map[*node]*place
	order  *list.List
	max    int
	timer  *time.Timer
	closed bool
}

func newPlaces(max int) *places {
	return &places{byNode: map[*node]*place{}, order: list.New(), max: max}
}

// get is the cached place of n, if it was checked lately.
func (c *places) get(n *node, now time.Time) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.byNode[n]
	if p == nil || now.Sub(p.checked) > trust {
		return nil
	}
	p.refs++
	p.used = now
	c.order.MoveToFront(p.elem)
	return p
}

// add caches p in place of an older one of the same node.
func (c *places) add(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.remove(c.byNode[p.node])
	p.refs++
	p.elem = c.order.PushFront(p)
	c.byNode[p.node] = p
	for c.order.Len() > c.max {
		c.remove(c.order.Back().Value.(*place))
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(idle, c.sweep)
	}
}

// remove takes p out of the cache; it is closed when nobody uses it.
func (c *places) remove(p *place) {
	if p == nil || p.elem == nil {
		return
	}
	c.order.Remove(p.elem)
	p.elem = nil
	delete(c.byNode, p.node)
	c.unref(p)
}

func (c *places) unref(p *place) {
	if p.refs--; p.refs == 0 {
		unix.Close(p.fd)
	}
}

// done gives back what get or session.place returned.
func (c *places) done(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unref(p)
}

// lose is called when n may have been moved or deleted.
func (c *places) lose(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.byNode[n])
}

// empty closes all that nobody uses, for the want of descriptors.
func (c *places) empty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.order.Len() > 0 {
		c.remove(c.order.Back().Value.(*place))
	}
}

func (c *places) close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.empty()
}

// sweep closes the idle ones and comes back as long as there are others.
func (c *places) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	now := time.Now()
	for e := c.order.Back(); e != nil; e = c.order.Back() {
		p := e.Value.(*place)
		if now.Sub(p.used) < idle {
			break
		}
		c.remove(p)
	}
	if c.order.Len() > 0 && !c.closed {
		c.timer = time.AfterFunc(idle, c.sweep)
	}
}

// place opens n: by its names from the root down, never through a symbolic
// link, and only if the file found there is n. A file that no longer has a name
// it is known by is found by an open handle, or is ESTALE. The caller gives the
// place back with places.done.
func (s *session) place(n *node) (*place, error) {
	now := time.Now()
	if p := s.places.get(n, now); p != nil {
		return p, nil
	}
	// Each turn but the last follows a rename or takes away a name.
	for range maxTurns {
		moves := s.moves.now()
		parent, path, ok := s.nodes.path(n)
		if !ok {
			return s.handles.place(n)
		}
		at, rest, own := s.x.root, path, false
		if s.nodes.standing(n)&shadowed != 0 {
			at, rest, own = s.redirected(path)
		}
		fd, err := s.find(n, at, rest)
		checked := now
		if gone(err) && parent != nil {
			if s.moves.wait(moves) {
				continue
			}
			if s.nodes.standing(n)&shadowed != 0 {
				return nil, unix.ESTALE // it was the host's: the guest looks again
			}
			name := path[len(path)-1]
			fd, checked, err = s.findIn(n, parent, name)
			if err == errNotIn {
				s.nodes.lost(n, alias{parent, name})
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		p := &place{fd: fd, refs: 1, node: n, checked: checked, used: now, own: own}
		if n.isDir() {
			s.places.add(p)
		}
		return p, nil
	}
	return nil, unix.ESTALE
}

// errNotIn is a file that does not lie where it is known to be.
var errNotIn = errors.New("not there")

// findIn is find for a file whose path leads nowhere: its directory may have
// been moved, and is known still or will be again. What was found by the
// directory is as certain as that was.
func (s *session) findIn(n, dir *node, name string) (fd int, checked time.Time, err error) {
	p, err := s.place(dir)
	if err != nil {
		return -1, checked, err
	}
	defer s.places.done(p)
	fd, err = s.find(n, p.fd, []string{name})
	if gone(err) {
		err = errNotIn
	}
	return fd, p.checked, err
}

const maxTurns = 100

// gone tells the errors that say that a file is not where it was known to be.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ESTALE) ||
		errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

// path is n's first name, as its parent and as components from the root.
func (t *nodes) path(n *node) (parent *node, path []string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n == t.root {
		return nil, nil, true
	}
	for at := n; at != t.root; at = at.names[0].parent {
		if len(at.names) == 0 || len(path) > maxDepth {
			return nil, nil, false
		}
		path = append(path, at.names[0].name)
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return n.names[0].parent, path, true
}

// lost says that n was not found as a.
func (t *nodes) lost(n *node, a alias) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.parent.kids[a.name] == n {
		t.unname(a)
	}
}

// find opens the file at path beneath the directory at and checks that it is n.
func (s *session) find(n *node, at int, path []string) (int, error) {
	fd, err := s.walk(at, path)
	if err != nil {
		return -1, err
	}
	var st unix.Statx_t
	if err = statFD(fd, &st); err == nil && !s.same(n, &st) {
		err = unix.ESTALE
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// same tells whether st is of n's file.
func (s *session) same(n *node, st *unix.Statx_t) bool {
	return keyOf(st, n.dev) == n.key && fileType(st) == n.typ
}

// beneath is how every path is opened. Mounts are crossed.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// walk opens the components of path one after the other, as many in one call as
// a path may have bytes.
func (s *session) walk(at int, path []string) (int, error) {
	for from := at; ; {
		n, length := 0, 0
		for n < len(path) && length+len(path[n])+1 < unix.PathMax {
			length += len(path[n]) + 1
			n++
		}
		name := strings.Join(path[:n], "/")
		if n == 0 {
			name = "."
		}
		fd, err := s.openat2(at, name)
		if at != from {
			unix.Close(at)
		}
		if err != nil || n == len(path) {
			return fd, err
		}
		path, at = path[n:], fd
	}
}

func (s *session) openat2(at int, name string) (fd int, err error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath}
	err = s.descriptor(func() error {
		fd, err = unix.Openat2(at, name, how)
		if err == unix.EAGAIN { // a rename on the way: RESOLVE_BENEATH could not be sure
			return unix.EINTR
		}
		return err
	})
	return fd, err
}

// descriptor repeats a call that makes a descriptor once the cached ones are
// closed, if there was none left.
func (s *session) descriptor(call func() error) error {
	err := restart(call)
	if err == unix.EMFILE || err == unix.ENFILE {
		s.places.empty()
		err = restart(call)
	}
	return err
}
