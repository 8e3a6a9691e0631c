//go:build linux

package share

import (
	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// rename is RENAME and RENAME2.
func rename(c *call) error {
	newDir, flags := c.in.U64(), uint32(0)
	if c.h.Op == fusewire.Rename2 {
		flags = c.in.U32()
		c.in.Skip(4)
	}
	oldName, newName := c.in.Name(), c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return unix.EINVAL
	}
	s := c.s
	from, err := s.spot(c.h.Node, oldName)
	if err != nil {
		return err
	}
	defer s.leave(from)
	to, err := s.spot(newDir, newName)
	if err != nil {
		return err
	}
	defer s.leave(to)
	if err := s.mayMove(from, to, flags&unix.RENAME_EXCHANGE != 0); err != nil {
		return err
	}
	if err := s.mayRedirect(from, to, flags&unix.RENAME_EXCHANGE != 0); err != nil {
		return err
	}
	s.changingName(from)
	s.changingName(to)
	return s.moves.do(
		func() error {
			return s.asOwner(c, func() error { return s.move(from, to, uint(flags)) }, from.place, to.place)
		},
		func() { s.moved(from, to, flags&unix.RENAME_EXCHANGE != 0) },
	)
}

// move renames, and takes it back where the new name turns out to be another
// spelling of one that a rule has.
func (s *session) move(from, to *spot, flags uint) error {
	if err := unix.Renameat2(from.fd, from.file, to.fd, to.file, flags); err != nil {
		return err
	}
	var st unix.Statx_t
	if to.onHost != nil || s.x.rules.oneSpelling(to.name) {
		return nil
	}
	if flags&unix.RENAME_EXCHANGE == 0 && statAt(to.fd, to.name, &st) == nil && s.misspelled(to, &st) {
		unix.Renameat2(to.fd, to.file, from.fd, from.file, unix.RENAME_NOREPLACE)
		return unix.EPERM
	}
	return nil
}

// mayMove judges both ends of a rename.
func (s *session) mayMove(from, to *spot, exchange bool) error {
	var st unix.Statx_t
	if err := s.stat(from, &st); err != nil {
		return err
	}
	if (from.says|to.says)&(protected|above) != 0 || to.says&hidden != 0 {
		return unix.EPERM
	}
	// A file that must not be seen must not be replaced either.
	err := s.stat(to, &st)
	if err == unix.ENOENT && statAt(to.fd, to.file, &st) == nil {
		return unix.EPERM
	}
	if exchange {
		return err
	}
	return nil
}

// mayRedirect has a rename of what is shadowed made in the store. Into it and out
// of it there is none, as between file systems.
func (s *session) mayRedirect(from, to *spot, exchange bool) error {
	if (from.says|to.says)&shadowed == 0 {
		return nil
	}
	if exchange && from.entry+to.entry != "" {
		return unix.EPERM
	}
	if err := s.mayLose(from); err != nil {
		return err
	}
	if (from.says^to.says)&shadowed != 0 {
		return unix.EXDEV
	}
	return s.ownSpot(to)
}

// moved tells the table of nodes of a rename.
func (s *session) moved(from, to *spot, exchange bool) {
	t := s.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	a, b := alias{from.dir, from.name}, alias{to.dir, to.name}
	n, m := a.parent.kids[a.name], b.parent.kids[b.name]
	if n != nil && n == m {
		return // two links to one file: the host did nothing
	}
	if m != nil {
		s.places.lose(m)
	}
	for _, k := range []*node{n, m} {
		if k != nil {
			k.lookups++ // while it has no name
		}
	}
	t.unname(a)
	t.unname(b)
	if n != nil {
		t.name(n, b.parent, b.name)
	}
	if exchange && m != nil {
		t.name(m, a.parent, a.name)
	}
	for _, k := range []*node{n, m} {
		if k != nil {
			k.lookups--
			t.drop(k)
		}
	}
}
