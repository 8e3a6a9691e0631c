//go:build linux

package share

import (
	"strconv"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// permissions are the mode bits that the guest can set: not set-user-ID and
// set-group-ID, which would act on the host.
const permissions = 0o1777

func lookup(c *call) error {
	name := c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	at, err := s.spot(c.h.Node, name)
	if err != nil {
		return err
	}
	defer s.leave(at)
	seen := s.lookAt(at)
	var st unix.Statx_t
	if err := s.stat(at, &st); err == unix.ENOENT {
		c.out = appendAbsent(c.out, s.absent(name, seen))
		return nil
	} else if err != nil {
		return err
	}
	var n *node
	c.out, n, err = s.entry(c.out, at.dir, name, &st, seen)
	if err == nil {
		c.undo = func() { s.nodes.forget(n.id, 1) }
	}
	return err
}

// made answers with the entry of what was just made at a spot with the given
// mode, which the host's umask may have changed.
func (c *call) made(at *spot, mode uint32) error {
	s := c.s
	seen := s.lookAt(at)
	var st unix.Statx_t
	if err := statAt(at.fd, at.file, &st); err != nil {
		return err
	}
	if s.misspelled(at, &st) {
		return s.unmake(at, &st)
	}
	if fileType(&st) != unix.S_IFLNK && uint32(st.Mode)&permissions != mode&permissions {
		if err := s.chmodAt(at, &st, mode); err != nil {
			return err
		}
	}
	var err error
	c.out, _, err = s.entry(c.out, at.dir, at.name, &st, seen)
	return err
}

// unmake removes what was just made under another spelling of a ruled name.
func (s *session) unmake(at *spot, st *unix.Statx_t) error {
	flags := 0
	if fileType(st) == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	unix.Unlinkat(at.fd, at.file, flags)
	return unix.EPERM
}

// chmodAt gives the file st at a spot its mode, and reads st anew.
func (s *session) chmodAt(at *spot, st *unix.Statx_t, mode uint32) error {
	fd, err := s.openat2(at.fd, at.file)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var now unix.Statx_t
	if err := statFD(fd, &now); err != nil {
		return err
	}
	if inodeOf(&now) != inodeOf(st) || fileType(&now) != fileType(st) {
		return unix.ESTALE
	}
	if err := s.chmod(fd, uint32(now.Mode)&unix.S_ISGID|mode&permissions); err != nil {
		return err
	}
	return statFD(fd, st)
}

// chmod is fchmod for an O_PATH descriptor.
func (s *session) chmod(fd int, mode uint32) error {
	return restart(func() error { return unix.Fchmodat(s.x.fds, strconv.Itoa(fd), mode, 0) })
}

func mkdir(c *call) error {
	mode, _, name := c.in.U32(), c.in.U32(), c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	at, err := c.s.spotToMake(c.h.Node, name, true)
	if err != nil {
		return err
	}
	defer c.s.leave(at)
	err = c.s.asOwner(c, func() error { return unix.Mkdirat(at.fd, at.file, mode&permissions) }, at.place)
	if err != nil {
		return err
	}
	return c.made(at, mode)
}

// mknod makes files, and FIFOs and sockets, which live in the guest only. A
// device would be one of the host's.
func mknod(c *call) error {
	mode, _ := c.in.U32(), c.in.U32()
	c.in.Skip(8)
	name := c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	kind := mode & unix.S_IFMT
	if kind == 0 {
		kind = unix.S_IFREG
	}
	if kind != unix.S_IFREG && kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return unix.EPERM
	}
	at, err := c.s.spotToMake(c.h.Node, name, false)
	if err != nil {
		return err
	}
	defer c.s.leave(at)
	err = c.s.asOwner(c, func() error { return unix.Mknodat(at.fd, at.file, kind|mode&permissions, 0) }, at.place)
	if err != nil {
		return err
	}
	return c.made(at, mode)
}

func symlink(c *call) error {
	name, target := c.in.Name(), c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	at, err := c.s.spotToMake(c.h.Node, name, false)
	if err != nil {
		return err
	}
	defer c.s.leave(at)
	err = c.s.asOwner(c, func() error { return unix.Symlinkat(target, at.fd, at.file) }, at.place)
	if err != nil {
		return err
	}
	return c.made(at, 0)
}

func link(c *call) error {
	old, name := c.in.U64(), c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	n, err := s.nodes.get(old)
	if err != nil {
		return err
	}
	if n.isDir() {
		return unix.EPERM
	}
	from, err := s.place(n)
	if err != nil {
		return err
	}
	defer s.places.done(from)
	var st unix.Statx_t
	if err := statFD(from.fd, &st); err != nil {
		return err
	}
	if err := s.mayChange(n, &st); err != nil {
		return err
	}
	at, err := s.spotToMake(c.h.Node, name, false)
	if err != nil {
		return err
	}
	defer s.leave(at)
	if (s.nodes.standing(n)^at.says)&shadowed != 0 {
		return unix.EXDEV
	}
	s.changing(n)
	err = s.asOwner(c, func() error {
		return unix.Linkat(s.x.fds, strconv.Itoa(from.fd), at.fd, at.file, unix.AT_SYMLINK_FOLLOW)
	}, at.place)
	if err != nil {
		return err
	}
	return c.made(at, uint32(st.Mode))
}

// unlink is UNLINK and RMDIR.
func unlink(c *call) error {
	name := c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	s := c.s
	at, err := s.spot(c.h.Node, name)
	if err != nil {
		return err
	}
	defer s.leave(at)
	var st unix.Statx_t
	if err := s.stat(at, &st); err != nil {
		return err
	}
	flags := 0
	if c.h.Op == fusewire.Rmdir {
		flags = unix.AT_REMOVEDIR
	}
	// A link that a pattern's path leads through stays; an empty directory can go.
	if at.says&protected != 0 || at.says&above != 0 && fileType(&st) != unix.S_IFDIR {
		return unix.EPERM
	}
	if err := s.mayLose(at); err != nil {
		return err
	}
	s.changingName(at)
	err = s.asOwner(c, func() error { return unix.Unlinkat(at.fd, at.file, flags) }, at.place)
	if err != nil {
		return err
	}
	s.nodes.mu.Lock()
	n := at.dir.kids[name]
	s.nodes.unname(alias{at.dir, name})
	s.nodes.mu.Unlock()
	if n != nil {
		s.places.lose(n)
	}
	return nil
}

func readlink(c *call) error {
	if err := c.in.End(); err != nil {
		return err
	}
	n, err := c.s.nodes.get(c.h.Node)
	if err != nil {
		return err
	}
	if n.typ != unix.S_IFLNK {
		return unix.EINVAL
	}
	p, err := c.s.place(n)
	if err != nil {
		return err
	}
	defer c.s.places.done(p)
	buf := make([]byte, unix.PathMax)
	size, err := unix.Readlinkat(p.fd, "", buf)
	if err != nil {
		return err
	}
	c.out = append(c.out, buf[:size]...)
	return nil
}
