//go:build linux

package share

import (
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// exactly are the files that stand at the paths of rules and below, whatever
// other names they have.
type exactly struct {
	mu   sync.Mutex
	due  time.Time // when to look again
	says map[Inode]standing
	rest standing // of a file with several names that is none of them
}

// exactTime is how long the files at rules' paths are taken to be the same, and
// exactEach how much longer for each entry of a directory that was read: trees of
// files with many names are common, and to look at each path for each file is
// what takes longest of a look-up. So the looking takes a small part of the time,
// however much there is.
const (
	exactTime = 50 * time.Millisecond
	exactEach = 40 * time.Microsecond
)

// exact is what the rules say of a file with several names because of one that
// stands at a rule's path, or below, whatever name the guest uses.
func (s *session) exact(st *unix.Statx_t) standing {
	if st.Nlink < 2 || fileType(st) == unix.S_IFDIR {
		return 0
	}
	e := &s.exactly
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().After(e.due) {
		s.exactFiles(e)
	}
	if says, ok := e.says[inodeOf(st)]; ok {
		return says
	}
	return e.rest
}

// exactFiles looks at the paths.
func (s *session) exactFiles(e *exactly) {
	l := looking{s: s, says: map[Inode]standing{}, left: s.x.limits.ruled}
	for _, r := range s.x.rules.exact {
		l.along(s.x.root, r.parts, r.says)
	}
	e.says, e.rest = l.says, 0
	if l.missed {
		e.rest = protected
	}
	e.due = time.Now().Add(exactTime + time.Duration(s.x.limits.ruled-l.left)*exactEach)
}

// looking is one look at the rules' paths.
type looking struct {
	s      *session
	says   map[Inode]standing
	left   int    // how many more entries of directories are read
	missed bool   // there can be files that were not seen
	buf    []byte // for reading directories, one after the other
}

// along follows a rule's path from at on.
func (l *looking) along(at int, parts []string, says standing) {
	if len(parts) == 0 {
		l.note(at, says, 0)
		return
	}
	names := parts[:1]
	if isGlob(parts[0]) {
		names = l.names(at)
	}
	for _, name := range names {
		if isGlob(parts[0]) {
			if ok, _ := path.Match(strings.ToLower(parts[0]), strings.ToLower(name)); !ok {
				continue
			}
		}
		fd, err := l.s.openat2(at, name)
		if l.failed(err) {
			continue
		}
		l.along(fd, parts[1:], says)
		unix.Close(fd)
	}
}

// deepest is how far down directories are read.
const deepest = 64

// note notes the file fd, and all that lies below if it is a directory. Of sb's
// own directories it does not: they can be large, and nobody links to what is in
// them.
func (l *looking) note(fd int, says standing, depth int) {
	var st unix.Statx_t
	if l.failed(statFD(fd, &st)) {
		return
	}
	if fileType(&st) != unix.S_IFDIR {
		l.says[inodeOf(&st)] |= says
		return
	}
	dev, err := l.s.devices.of(&st, fd, "")
	if l.failed(err) || dev.pseudo || l.s.x.hidden[inodeOf(&st)] {
		return
	}
	if depth == deepest {
		l.missed = true
		return
	}
	for _, name := range l.names(fd) {
		if l.failed(statAt(fd, name, &st)) {
			continue
		}
		if fileType(&st) != unix.S_IFDIR {
			l.says[inodeOf(&st)] |= says
			continue
		}
		sub, err := l.s.openat2(fd, name)
		if l.failed(err) {
			continue
		}
		l.note(sub, says, depth+1)
		unix.Close(sub)
	}
}

// names are the names in the directory at; what is no directory has none.
func (l *looking) names(at int) (names []string) {
	fd, err := l.s.reopen(at, unix.O_RDONLY|unix.O_DIRECTORY)
	var st unix.Statx_t
	if err == unix.EACCES && statAt(at, ".", &st) == nil {
		l.missed = true // it cannot be read, but names in it can be used
	}
	if l.failed(err) {
		return nil
	}
	defer unix.Close(fd)
	dir := listing{fd: fd, buf: l.buf}
	for {
		e, err := dir.peek()
		l.buf = dir.buf
		if l.failed(err) || e.size == 0 {
			return names
		}
		if name := string(e.name); name != "." && name != ".." {
			if l.left == 0 {
				l.missed = true
				return names
			}
			l.left--
			names = append(names, name)
		}
		dir.rest = dir.rest[e.size:]
	}
}

// failed tells an error, and notes one that leaves open what is there. Where this
// user may not look, none of the user's programs finds a file by the rule's name.
func (l *looking) failed(err error) bool {
	if err != nil && err != unix.EACCES && err != unix.ENAMETOOLONG && !gone(err) {
		l.missed = true
	}
	return err != nil
}
