//go:build linux

package share

import (
	"errors"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// operation is how requests of one opcode are answered.
type operation struct {
	run      func(*call) error
	changes  bool // refused in a read-only share
	quick    bool // mostly done in less time than it takes to switch threads
	canLeave bool // an interrupted one may be given up: see interrupt
}

// operations by opcode. What is not in it is ENOSYS, after which the kernel does
// not ask again: OPENDIR, for it can read directories without; FLUSH, since what
// was written is in the host's file already; ACCESS, since the kernel checks
// modes itself (default_permissions); locks and POLL, which it does itself too.
var operations = [64]operation{
	fusewire.Lookup:          {run: lookup, quick: true, canLeave: true},
	fusewire.Getattr:         {run: getattr, quick: true, canLeave: true},
	fusewire.Setattr:         {run: setattr, quick: true, changes: true},
	fusewire.Readlink:        {run: readlink, quick: true, canLeave: true},
	fusewire.Symlink:         {run: symlink, quick: true, changes: true},
	fusewire.Mknod:           {run: mknod, quick: true, changes: true},
	fusewire.Mkdir:           {run: mkdir, quick: true, changes: true},
	fusewire.Unlink:          {run: unlink, quick: true, changes: true},
	fusewire.Rmdir:           {run: unlink, quick: true, changes: true},
	fusewire.Rename:          {run: rename, quick: true, changes: true},
	fusewire.Rename2:         {run: rename, quick: true, changes: true},
	fusewire.Link:            {run: link, quick: true, changes: true},
	fusewire.Open:            {run: open, quick: true},
	fusewire.Create:          {run: create, quick: true, changes: true},
	fusewire.Tmpfile:         {run: tmpfile, quick: true, changes: true},
	fusewire.Read:            {run: read, quick: true, canLeave: true},
	fusewire.Write:           {run: write, quick: true, changes: true, canLeave: true},
	fusewire.Release:         {run: release, quick: true},
	fusewire.Fsync:           {run: fsync, canLeave: true},
	fusewire.Fallocate:       {run: fallocate, changes: true},
	fusewire.Lseek:           {run: lseek, quick: true, canLeave: true},
	fusewire.CopyFileRange:   {run: copyFileRange, changes: true, canLeave: true},
	fusewire.CopyFileRange64: {run: copyFileRange, changes: true, canLeave: true},
	fusewire.Readdir:         {run: readdir, quick: true},
	fusewire.Readdirplus:     {run: readdir, quick: true},
	fusewire.Fsyncdir:        {run: fsync, canLeave: true},
	fusewire.Statfs:          {run: statfs, quick: true, canLeave: true},
	fusewire.Getxattr:        {run: getxattr, quick: true, canLeave: true},
	fusewire.Listxattr:       {run: listxattr, quick: true, canLeave: true},
	fusewire.Setxattr:        {run: setxattr, quick: true, changes: true},
	fusewire.Removexattr:     {run: removexattr, quick: true, changes: true},
	fusewire.Ioctl:           {run: func(*call) error { return unix.ENOTTY }, quick: true},
	fusewire.Destroy:         {run: func(*call) error { return nil }, quick: true},
}

func (c *call) run() error {
	op := operations[c.h.Op]
	if op.changes && c.s.x.readOnly {
		return unix.EROFS
	}
	return op.run(c)
}

// errno is the number that stands for err in a reply; 0 for nil.
func errno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	var n unix.Errno
	if errors.As(err, &n) {
		return n
	}
	return unix.EIO
}

// maxName is NAME_MAX.
const maxName = 255

// checkName refuses a name that is not one component.
func checkName(name string) error {
	if len(name) > maxName {
		return unix.ENAMETOOLONG
	}
	if name == "" || name == "." || name == ".." {
		return unix.EINVAL
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return unix.EINVAL
		}
	}
	return nil
}

// spot is a name in a directory, with the directory open.
type spot struct {
	dir  *node
	name string // the guest's
	file string // the same, but for an entry of the store
	*place
	says     standing
	changing bool

	// Of a shadowed path itself, not of what lies below one: its entry's name in
	// the store, and where it lies on the host if the place is the store.
	entry  string
	onHost *place
}

// spot is where a request's name points. The caller leaves it.
func (s *session) spot(dir uint64, name string) (*spot, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	n, err := s.nodes.dir(dir)
	if err != nil {
		return nil, err
	}
	p, err := s.place(n)
	if err != nil {
		return nil, err
	}
	at := &spot{dir: n, name: name, file: name, place: p, says: s.nodes.standingAt(n, name)}
	s.redirect(at)
	return at, nil
}

// spotToMake is spot for a name that is to be made. Above a pattern's path there
// can be nothing but directories.
func (s *session) spotToMake(dir uint64, name string, isDir bool) (*spot, error) {
	at, err := s.spot(dir, name)
	if err != nil {
		return nil, err
	}
	if at.says&(hidden|protected) != 0 || at.says&above != 0 && !isDir {
		s.leave(at)
		return nil, unix.EPERM
	}
	if err := s.ownSpot(at); err != nil {
		s.leave(at)
		return nil, err
	}
	s.changingName(at)
	return at, nil
}

// leave gives back a spot, whose change is over.
func (s *session) leave(at *spot) {
	s.places.done(at.place)
	if at.onHost != nil {
		s.places.done(at.onHost)
	}
	if at.changing {
		s.nodes.mu.Lock()
		at.dir.changing--
		at.dir.changes++
		s.nodes.mu.Unlock()
	}
}

// stat is statAt for a spot; what the guest must not see does not exist.
func (s *session) stat(at *spot, st *unix.Statx_t) error {
	if err := s.statListed(at, st); err != nil {
		return err
	}
	if at.onHost != nil {
		return nil
	}
	return s.spelled(at, st)
}

// statListed is stat for a name that the directory was seen to have.
func (s *session) statListed(at *spot, st *unix.Statx_t) error {
	if at.says&hidden != 0 {
		return unix.ENOENT
	}
	if err := statAt(at.fd, at.file, st); err != nil {
		return err
	}
	if s.x.hidden[inodeOf(st)] || s.exact(st)&hidden != 0 {
		return unix.ENOENT
	}
	return nil
}

// mayChange tells whether the guest may change n itself, whose state is st.
func (s *session) mayChange(n *node, st *unix.Statx_t) error {
	says := s.nodes.standing(n) | s.exact(st)
	switch {
	case says&(protected|hidden) != 0:
		return unix.EPERM
	case says&shadowed != 0 && !s.owns(n, st):
		return s.shadow(n)
	}
	return nil
}
