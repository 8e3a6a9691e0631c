//go:build linux

package share

import (
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// handle is an open file of the guest.
type handle struct {
	id    uint64
	node  *node
	fd    int
	refs  int  // users, and one for the table
	write bool // the guest may change the file through it
	priv  bool // the file had a set-user-ID or set-group-ID bit
}

// handles is the table of handles.
type handles struct {
	mu    sync.Mutex
	byID  map[uint64]*handle
	last  uint64
	max   int
	nodes *nodes
}

// reserve fails when the guest has as many files open as it may.
func (t *handles) full() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byID) >= t.max {
		return unix.ENFILE
	}
	return nil
}

// add takes over fd.
func (t *handles) add(h *handle) uint64 {
	h.refs = 1
	t.mu.Lock()
	t.last++
	h.id = t.last
	t.byID[h.id] = h
	t.mu.Unlock()
	t.nodes.mu.Lock()
	h.node.handles = append(h.node.handles, h)
	t.nodes.mu.Unlock()
	return h.id
}

// get is the guest's handle id, which must be one of node's. The caller gives it
// back with done.
func (t *handles) get(id, node uint64) (*handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byID[id]
	if h == nil || h.node.id != node {
		return nil, unix.EBADF
	}
	h.refs++
	return h, nil
}

func (t *handles) done(h *handle) {
	t.mu.Lock()
	h.refs--
	last := h.refs == 0
	t.mu.Unlock()
	if last {
		unix.Close(h.fd)
	}
}

// release ends the guest's use of a handle.
func (t *handles) release(id, node uint64) error {
	h, err := t.get(id, node)
	if err != nil {
		return err
	}
	t.nodes.mu.Lock()
	h.node.handles = slices.DeleteFunc(h.node.handles, func(o *handle) bool { return o == h })
	t.nodes.drop(h.node)
	t.nodes.mu.Unlock()
	t.mu.Lock()
	if t.byID[id] == h {
		delete(t.byID, id)
		h.refs--
	}
	t.mu.Unlock()
	t.done(h)
	return nil
}

// place is a descriptor of a file that has no name any more but is open.
func (t *handles) place(n *node) (*place, error) {
	t.nodes.mu.Lock()
	defer t.nodes.mu.Unlock()
	for _, h := range n.handles {
		// It is open as long as it stands here: release takes it away first.
		fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
		return &place{fd: fd, refs: 1, node: n}, err
	}
	return nil, unix.ESTALE
}

// close closes what the guest left open. Nothing else may be running.
func (t *handles) close() {
	for _, h := range t.byID {
		unix.Close(h.fd)
	}
	clear(t.byID)
}

// reopen opens the file of an O_PATH descriptor. The caller has made sure of its
// type: a device or a FIFO would be opened for good.
func (s *session) reopen(fd, flags int) (n int, err error) {
	err = s.descriptor(func() error {
		n, err = unix.Openat(s.x.fds, strconv.Itoa(fd), flags|unix.O_CLOEXEC, 0)
		return err
	})
	return n, err
}
