//go:build linux

package share

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// openFlags are those of the guest's flags that the host's open gets. Of the
// others the guest's kernel sees to those that matter (O_SYNC, by FSYNC), and
// some would reach past the file (O_DIRECT, O_PATH, O_DIRECTORY).
const openFlags = unix.O_ACCMODE | unix.O_APPEND | unix.O_TRUNC

func open(c *call) error {
	flags, _ := c.in.U32(), c.in.U32()
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	n, err := s.nodes.get(c.h.Node)
	if err != nil {
		return err
	}
	if n.isDir() {
		return unix.EISDIR
	}
	p, err := s.place(n)
	if err != nil {
		return err
	}
	defer s.places.done(p)
	h, st, err := s.openFile(c, p, int(flags&openFlags))
	if err != nil {
		return err
	}
	keep := uint32(0)
	if s.keep(n, st) {
		keep = fusewire.KeepCache
	}
	c.out = appendOpen(c.out, s.handles.add(h), keep)
	return nil
}

// openFile opens the regular file at p, and says what state it is in then.
func (s *session) openFile(c *call, p *place, flags int) (*handle, *unix.Statx_t, error) {
	n := p.node
	if n.typ != unix.S_IFREG {
		return nil, nil, unix.EACCES
	}
	access := flags & unix.O_ACCMODE
	changes := access != unix.O_RDONLY || flags&unix.O_TRUNC != 0
	var st unix.Statx_t
	if changes {
		if s.x.readOnly {
			return nil, nil, unix.EROFS
		}
		if err := statFD(p.fd, &st); err != nil {
			return nil, nil, err
		}
		if err := s.mayChange(n, &st); err != nil {
			return nil, nil, err
		}
	}
	if access == unix.O_ACCMODE {
		return nil, nil, unix.EINVAL
	}
	if err := s.handles.full(); err != nil {
		return nil, nil, err
	}
	if flags&unix.O_TRUNC != 0 {
		s.changing(n)
	}
	var fd int
	err := s.asOwner(c, func() (err error) {
		fd, err = s.reopen(p.fd, flags)
		return err
	}, p)
	if err != nil {
		return nil, nil, err
	}
	if err := statFD(fd, &st); err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	h := &handle{node: n, fd: fd, write: access != unix.O_RDONLY, priv: st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0}
	return h, &st, nil
}

// appendOpen appends a struct fuse_open_out.
func appendOpen(b []byte, fh uint64, flags uint32) []byte {
	b = binary.LittleEndian.AppendUint64(b, fh)
	b = binary.LittleEndian.AppendUint32(b, flags)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// create makes a file and opens it; if it exists by now, it opens it.
func create(c *call) error {
	flags, mode, _, _ := c.in.U32(), c.in.U32(), c.in.U32(), c.in.U32()
	name := c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	at, err := s.spotToMake(c.h.Node, name, false)
	if err != nil {
		return err
	}
	defer s.leave(at)
	if err := s.handles.full(); err != nil {
		return err
	}
	access := int(flags) & (unix.O_ACCMODE | unix.O_APPEND)
	var fd int
	err = s.asOwner(c, func() (err error) {
		// O_EXCL always: what another has put there may be anything.
		fd, err = unix.Openat(at.fd, at.file, access|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode&permissions)
		return err
	}, at.place)
	if err == unix.EEXIST && flags&unix.O_EXCL == 0 {
		return s.createExisting(c, at, int(flags&openFlags))
	}
	if err != nil {
		return err
	}
	return s.created(c, at, fd, mode)
}

// created answers CREATE and TMPFILE with the new file fd, at a spot or nowhere.
func (s *session) created(c *call, at *spot, fd int, mode uint32) error {
	seen := s.lookAt(at)
	var st unix.Statx_t
	err := statFD(fd, &st)
	if err == nil && uint32(st.Mode)&permissions != mode&permissions {
		if err = unix.Fchmod(fd, mode&permissions); err == nil {
			err = statFD(fd, &st)
		}
	}
	if err == nil && at.name != "" && s.misspelled(at, &st) {
		err = s.unmake(at, &st)
	}
	var n *node
	if err == nil {
		c.out, n, err = s.entryOf(c.out, at, &st, seen)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	h := &handle{node: n, fd: fd, write: true}
	c.out = appendOpen(c.out, s.handles.add(h), 0)
	return nil
}

// entryOf is entry at a spot, whose name may be empty: then the file is known as
// nothing.
func (s *session) entryOf(b []byte, at *spot, st *unix.Statx_t, seen since) ([]byte, *node, error) {
	if at.name != "" {
		return s.entry(b, at.dir, at.name, st, seen)
	}
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	n, err := s.nodes.put(nil, "", keyOf(st, at.dir.dev), fileType(st), at.dir.dev)
	if err != nil {
		return b, nil, err
	}
	return s.appendEntry(b, n.id, ttls{}, st), n, nil
}

func (s *session) createExisting(c *call, at *spot, flags int) error {
	seen := s.lookAt(at)
	var st unix.Statx_t
	if err := s.stat(at, &st); err != nil {
		return err
	}
	if fileType(&st) != unix.S_IFREG {
		return unix.EEXIST
	}
	b, n, err := s.entry(c.out, at.dir, at.name, &st, seen)
	if err != nil {
		return err
	}
	p, err := s.place(n)
	if err == nil {
		var h *handle
		h, _, err = s.openFile(c, p, flags)
		s.places.done(p)
		if err == nil {
			c.out = appendOpen(b, s.handles.add(h), 0)
			return nil
		}
	}
	s.nodes.forget(n.id, 1)
	return err
}

// tmpfile makes a file without a name; LINK can give it one.
func tmpfile(c *call) error {
	flags, mode, _, _ := c.in.U32(), c.in.U32(), c.in.U32(), c.in.U32()
	c.in.Name() // the kernel's name for a file that has none
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	dir, err := s.nodes.dir(c.h.Node)
	if err != nil {
		return err
	}
	if s.nodes.standing(dir)&(hidden|protected) != 0 {
		return unix.EPERM
	}
	if err := s.handles.full(); err != nil {
		return err
	}
	p, err := s.place(dir)
	if err != nil {
		return err
	}
	defer s.places.done(p)
	if s.nodes.standing(dir)&shadowed != 0 && !p.own {
		return s.shadow(dir)
	}
	var fd int
	access := int(flags) & (unix.O_ACCMODE | unix.O_EXCL | unix.O_APPEND)
	err = s.asOwner(c, func() (err error) {
		fd, err = unix.Openat(p.fd, ".", unix.O_TMPFILE|access|unix.O_CLOEXEC, mode&permissions)
		return err
	}, p)
	if err != nil {
		return err
	}
	return s.created(c, &spot{dir: dir, place: p}, fd, mode)
}

func release(c *call) error {
	fh := c.in.U64()
	c.in.Skip(16)
	if err := c.in.End(); err != nil {
		return err
	}
	return c.s.handles.release(fh, c.h.Node)
}
