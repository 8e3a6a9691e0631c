//go:build linux

package share

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"sb/lib/manifest"
)

// store is the directory that holds what the guest wrote at shadowed paths. Each
// path has one entry in it, called by its escaped path (ShadowName); what lies
// below a shadowed directory lies below that entry.
type store struct {
	place
	copying sync.Mutex
}

// The bounds of what is copied into the store for the guest's first change. What
// is larger is protected instead.
const (
	maxShadow      = 1 << 20 // bytes of a file
	maxShadowFiles = 256     // entries of a directory
)

// ShadowName is what the entry of a path below the root is called in a store.
func ShadowName(path string) string { return manifest.ShadowName(path) }

// openStore takes a duplicate of dir; nil if there is none.
func openStore(dir *os.File) (*store, error) {
	if dir == nil {
		return nil, nil
	}
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the directory of its shadows: %w", err)
	}
	return &store{place: place{fd: fd, refs: 1, own: true}}, nil
}

func (st *store) close() {
	if st != nil {
		unix.Close(st.fd)
	}
}

// has tells whether the guest has changed the path that name stands for.
func (st *store) has(name string) bool {
	var s unix.Statx_t
	return statAt(st.fd, name, &s) == nil
}

// shadowPoint splits a path where the first shadowed one ends: its entry's name
// in the store, and how many components it has; 0 if none is.
func (s *session) shadowPoint(path []string) (entry string, n int) {
	if s.x.store == nil {
		return "", 0
	}
	whole := ""
	p, says := s.x.rules.start(), standing(0)
	for i, name := range path {
		p, says = s.x.rules.step(p, name)
		if whole += "/" + name; says&shadowed != 0 {
			return ShadowName(whole[1:]), i + 1
		}
	}
	return "", 0
}

// redirected is where a path leads: into the store, if the guest has changed
// something there.
func (s *session) redirected(path []string) (at int, rest []string, own bool) {
	entry, n := s.shadowPoint(path)
	if n == 0 || !s.x.store.has(entry) {
		return s.x.root, path, false
	}
	return s.x.store.fd, append([]string{entry}, path[n:]...), true
}

// redirect makes a spot that is a shadowed path's lead into the store, if the
// guest has changed it.
func (s *session) redirect(at *spot) {
	if s.x.store == nil || at.says&shadowed == 0 || at.says&hidden != 0 || s.nodes.standing(at.dir)&shadowed != 0 {
		return
	}
	_, path, ok := s.nodes.path(at.dir)
	if !ok {
		return
	}
	entry, n := s.shadowPoint(append(path, at.name))
	if n != len(path)+1 || len(entry) > maxName {
		return
	}
	at.entry = entry
	if s.x.store.has(entry) {
		s.intoStore(at)
	}
}

// intoStore points a spot at its entry in the store.
func (s *session) intoStore(at *spot) {
	at.onHost, at.place, at.file = at.place, &s.x.store.place, at.entry
	s.places.mu.Lock()
	at.place.refs++
	s.places.mu.Unlock()
}

// ownSpot makes sure that a change at a spot is made in the store, if the spot is
// shadowed. Where the change is of something that the guest knows as the host's,
// its kernel is told to look again (ESTALE, after which it does).
func (s *session) ownSpot(at *spot) error {
	switch {
	case at.says&shadowed == 0 || at.place.own:
		return nil
	case at.entry == "":
		return s.shadow(at.dir)
	}
	if err := s.copyUp(at.entry, at.place.fd, at.name); err != nil && err != unix.ENOENT {
		return err
	}
	s.intoStore(at)
	return nil
}

// shadow copies what n is of into the store, for it is to be changed. The error
// is what to answer in any case.
func (s *session) shadow(n *node) error {
	_, path, ok := s.nodes.path(n)
	if !ok {
		return unix.EPERM
	}
	entry, length := s.shadowPoint(path)
	if length == 0 || len(entry) > maxName {
		return unix.EPERM
	}
	dir, err := s.walk(s.x.root, path[:length-1])
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := s.copyUp(entry, dir, path[length-1]); err != nil {
		return err
	}
	s.places.lose(n)
	return unix.ESTALE
}

// owns tells whether st, the state of n, is of a file in the store.
func (s *session) owns(n *node, st *unix.Statx_t) bool {
	_, path, ok := s.nodes.path(n)
	if !ok {
		return false
	}
	at, rest, own := s.redirected(path)
	if !own {
		return false
	}
	fd, err := s.walk(at, rest)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var found unix.Statx_t
	return statFD(fd, &found) == nil && inodeOf(&found) == inodeOf(st)
}

// mayLose refuses to take away what is shadowed and would show as the host's then.
func (s *session) mayLose(at *spot) error {
	if at.says&shadowed == 0 || at.entry == "" {
		return s.ownSpot(at)
	}
	if at.onHost == nil {
		return unix.EPERM
	}
	var st unix.Statx_t
	if err := statAt(at.onHost.fd, at.name, &st); err != unix.ENOENT {
		return unix.EPERM
	}
	return nil
}

// copyUp copies a file, or a directory of files, into the store as entry.
func (s *session) copyUp(entry string, dir int, name string) error {
	st := s.x.store
	if st == nil {
		return unix.EPERM
	}
	st.copying.Lock()
	defer st.copying.Unlock()
	if st.has(entry) {
		return nil
	}
	const making = "%making" // no escaped path is called so
	removeAll(st.fd, making)
	if err := s.copyTo(st.fd, making, dir, name, true); err != nil {
		removeAll(st.fd, making)
		return err
	}
	return unix.Renameat2(st.fd, making, st.fd, entry, unix.RENAME_NOREPLACE)
}

func (s *session) copyTo(to int, toName string, from int, name string, deep bool) error {
	fd, err := s.openat2(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := statFD(fd, &st); err != nil {
		return err
	}
	mode := uint32(st.Mode) & permissions
	switch {
	case fileType(&st) == unix.S_IFREG && st.Size <= maxShadow:
		return s.copyFile(to, toName, fd, mode)
	case fileType(&st) == unix.S_IFDIR && deep:
		return s.copyDir(to, toName, fd, mode)
	}
	return unix.EPERM
}

func (s *session) copyFile(to int, toName string, fd int, mode uint32) error {
	in, err := s.reopen(fd, unix.O_RDONLY)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(in), toName)
	defer src.Close()
	out, err := unix.Openat(to, toName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(out), toName)
	defer dst.Close()
	if n, err := io.Copy(dst, io.LimitReader(src, maxShadow+1)); err != nil {
		return err
	} else if n > maxShadow {
		return unix.EPERM
	}
	return unix.Fchmod(out, mode)
}

// copyDir copies a directory and the files in it; links and directories, which
// git has none of there, stay behind.
func (s *session) copyDir(to int, toName string, fd int, mode uint32) error {
	in, err := s.reopen(fd, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(in), toName)
	defer src.Close()
	names, err := src.Readdirnames(maxShadowFiles + 1)
	if err != nil && err != io.EOF {
		return err
	}
	if len(names) > maxShadowFiles {
		return unix.EPERM
	}
	if err := unix.Mkdirat(to, toName, mode|0o700); err != nil {
		return err
	}
	dst, err := unix.Openat(to, toName, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	for _, name := range names {
		if err := s.copyTo(dst, name, fd, name, false); err != nil && err != unix.EPERM {
			return err
		}
	}
	return nil
}

// removeAll removes a file, or a directory of files.
func removeAll(dir int, name string) {
	if unix.Unlinkat(dir, name, 0) != unix.EISDIR {
		return
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, n := range names {
		unix.Unlinkat(fd, n, 0)
	}
	unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}
