//go:build linux

package share

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

func getattr(c *call) error {
	flags, _, fh := c.in.U32(), c.in.U32(), c.in.U64()
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	n, err := s.nodes.any(c.h.Node)
	if err != nil {
		return err
	}
	if flags&fusewire.GetattrFH == 0 {
		fh = 0
	}
	var st unix.Statx_t
	seen, err := s.statNode(n, fh, &st)
	if err != nil {
		return err
	}
	c.out = s.appendAttrOut(c.out, s.tellAttr(n, &st, seen), &st)
	return nil
}

// statNode is the state of n, by a handle if there is one, and when it was seen
// where changes of it show.
func (s *session) statNode(n *node, fh uint64, st *unix.Statx_t) (since, error) {
	if says := s.nodes.standing(n); says&shadowed != 0 && !n.isDir() && fh == 0 {
		p, err := s.place(n)
		if err != nil {
			return since{}, err
		}
		defer s.places.done(p)
		return since{}, statFD(p.fd, st)
	}
	if n.isDir() {
		p, err := s.place(n)
		if err != nil {
			return since{}, err
		}
		defer s.places.done(p)
		seen := s.look(n, p.fd)
		return seen, statFD(p.fd, st)
	}
	if fh != 0 {
		h, err := s.handles.get(fh, n.id)
		if err != nil {
			return since{}, err
		}
		defer s.handles.done(h)
		seen := s.nodes.watched(n)
		return seen, statFD(h.fd, st)
	}
	for range maxTurns {
		moves := s.moves.now()
		a, ok := s.nodes.firstName(n)
		if !ok {
			break
		}
		dir, err := s.place(a.parent)
		if gone(err) {
			break
		} else if err != nil {
			return since{}, err
		}
		seen := s.look(a.parent, dir.fd)
		err = statAt(dir.fd, a.name, st)
		s.places.done(dir)
		if err == nil && s.same(n, st) {
			return seen, nil
		}
		if err != nil && !gone(err) {
			return seen, err
		}
		if !s.moves.wait(moves) {
			s.nodes.lost(n, a)
		}
	}
	p, err := s.handles.place(n)
	if err != nil {
		return since{}, err
	}
	defer s.places.done(p)
	return since{}, statFD(p.fd, st)
}

func (t *nodes) firstName(n *node) (alias, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(n.names) == 0 {
		return alias{}, false
	}
	return n.names[0], true
}

// watched is the state of the watch on the directory that n is known in.
func (t *nodes) watched(n *node) since {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(n.names) == 0 || n.names[0].parent.watch == nil {
		return since{}
	}
	w := n.names[0].parent.watch
	return since{watch: w, seq: w.seq}
}

// setattrIn is a struct fuse_setattr_in, without what is ignored.
type setattrIn struct {
	valid        uint32
	fh, size     uint64
	atime, mtime unix.Timespec
	mode         uint32
}

func readSetattr(in *fusewire.In) (a setattrIn) {
	a.valid, _ = in.U32(), in.U32()
	a.fh, a.size = in.U64(), in.U64()
	in.Skip(8)
	a.atime.Sec, a.mtime.Sec = int64(in.U64()), int64(in.U64())
	in.Skip(8)
	a.atime.Nsec, a.mtime.Nsec = int64(in.U32()), int64(in.U32())
	in.Skip(4)
	a.mode = in.U32()
	in.Skip(16)
	return a
}

// setattr changes size, mode and times. Owner and group stay: see Export.
func setattr(c *call) error {
	a := readSetattr(&c.in)
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	n, err := s.nodes.get(c.h.Node)
	if err != nil {
		return err
	}
	p, err := s.place(n)
	if err != nil {
		return err
	}
	defer s.places.done(p)
	var st unix.Statx_t
	if err := statFD(p.fd, &st); err != nil {
		return err
	}
	if err := s.mayChange(n, &st); err != nil {
		return err
	}
	s.changing(n)
	if err := s.apply(c, p, &a, &st); err != nil {
		return err
	}
	seen := s.nodes.watched(n)
	if err := statFD(p.fd, &st); err != nil {
		return err
	}
	c.out = s.appendAttrOut(c.out, s.tellAttr(n, &st, seen), &st)
	return nil
}

func (s *session) apply(c *call, p *place, a *setattrIn, st *unix.Statx_t) error {
	if a.valid&fusewire.AttrSize != 0 {
		if err := s.truncate(c, p, a); err != nil {
			return err
		}
	}
	if a.valid&fusewire.AttrMode != 0 {
		mode := a.mode & permissions
		if p.node.isDir() {
			mode |= a.mode & uint32(st.Mode) & unix.S_ISGID // it may stay
		}
		if err := s.chmod(p.fd, mode); err != nil {
			return err
		}
	}
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	setTime(&ts[0], a.atime, a.valid, fusewire.AttrAtime, fusewire.AttrAtimeNow)
	setTime(&ts[1], a.mtime, a.valid, fusewire.AttrMtime, fusewire.AttrMtimeNow)
	if ts[0].Nsec == unix.UTIME_OMIT && ts[1].Nsec == unix.UTIME_OMIT {
		return nil
	}
	return restart(func() error {
		return unix.UtimesNanoAt(p.fd, "", ts[:], unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	})
}

func setTime(t *unix.Timespec, to unix.Timespec, valid, set, now uint32) {
	switch {
	case valid&now != 0:
		t.Nsec = unix.UTIME_NOW
	case valid&set != 0 && to.Nsec < 1e9:
		*t = to
	}
}

// truncate sets the size, by the guest's handle if it has one: a file that was
// opened for writing can be truncated whatever its mode is now.
func (s *session) truncate(c *call, p *place, a *setattrIn) error {
	if p.node.typ != unix.S_IFREG {
		return unix.EINVAL
	}
	if int64(a.size) < 0 {
		return unix.EFBIG
	}
	if a.valid&fusewire.AttrFH != 0 {
		h, err := s.changeable(a.fh, p.node.id)
		if err != nil {
			return err
		}
		defer s.handles.done(h)
		s.dropPriv(h)
		return restart(func() error { return unix.Ftruncate(h.fd, int64(a.size)) })
	}
	h, _, err := s.openFile(c, p, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(h.fd)
	s.dropPriv(h)
	return restart(func() error { return unix.Ftruncate(h.fd, int64(a.size)) })
}

func statfs(c *call) error {
	if err := c.in.End(); err != nil {
		return err
	}
	n, err := c.s.nodes.get(c.h.Node)
	if err != nil {
		return err
	}
	p, err := c.s.place(n)
	if err != nil {
		return err
	}
	defer c.s.places.done(p)
	st, err := statfsAt(p.fd, "")
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for _, v := range []uint64{st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree} {
		c.out = le.AppendUint64(c.out, v)
	}
	for _, v := range []uint32{uint32(st.Bsize), maxName, uint32(st.Frsize)} {
		c.out = le.AppendUint32(c.out, v)
	}
	c.out = append(c.out, make([]byte, 4+6*4)...)
	return nil
}
