package undo

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// again repeats a call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// openAt opens one name in a directory, and no symbolic link. It never waits, as
// the open of a fifo would.
func openAt(at int, name string, flags int, mode uint32) (fd int, err error) {
	err = again(func() error {
		fd, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, mode)
		return err
	})
	return fd, err
}

func openDirAt(at int, name string) (int, error) {
	return openAt(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// openTree opens the directory that is recorded or put back.
func openTree(tree string) (int, error) {
	fd, err := openDirAt(unix.AT_FDCWD, tree)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: tree, Err: err}
	}
	return fd, nil
}

// walk opens the directory path beneath root.
func walk(root int, path string) (int, error) {
	fd, err := openDirAt(root, ".")
	if err != nil || path == "" {
		return fd, err
	}
	for name := range strings.SplitSeq(path, "/") {
		next, err := openDirAt(fd, name)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

func statAt(at int, name string) (st unix.Stat_t, err error) {
	err = again(func() error { return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

func stat(fd int) (st unix.Stat_t, err error) {
	err = again(func() error { return unix.Fstat(fd, &st) })
	return st, err
}

func readLink(at int, name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(at, name, buf)
	if err == nil && n > maxPath {
		err = unix.ENAMETOOLONG
	}
	return string(buf[:max(n, 0)]), err
}

// list names what is in a directory, sorted. The descriptor stays the caller's.
func list(fd int) ([]string, error) {
	own, err := openDirAt(fd, ".")
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), "directory")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func isType(st *unix.Stat_t, kind uint32) bool { return uint32(st.Mode)&unix.S_IFMT == kind }

func permissions(st *unix.Stat_t) uint32 { return uint32(st.Mode) & 0o7777 }

func identity(st *unix.Stat_t) Identity {
	return Identity{uint64(st.Dev), st.Ino, timeOf(st.Ctim)}
}

// attributes are those of an open file or directory that are the user's.
func attributes(fd int) (all []Attribute, err error) {
	names, err := attributeNames(fd)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	if len(names) > maxAttributes {
		return nil, fmt.Errorf("more than %d extended attributes", maxAttributes)
	}
	value, left := make([]byte, maxAttribute), maxValues
	for _, name := range names {
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, err
		}
		if left -= n; left < 0 {
			return nil, fmt.Errorf("more than %d bytes of extended attributes", maxValues)
		}
		all = append(all, Attribute{name, string(value[:n])})
	}
	return all, nil
}

func attributeNames(fd int) (names []string, err error) {
	n, err := unix.Flistxattr(fd, nil)
	if err == unix.ENOTSUP || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, n+1024) // a list that grew since is ERANGE
	if n, err = unix.Flistxattr(fd, buf); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
