package undo

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func entryOf(kind Kind, path string, st *unix.Stat_t) Entry {
	e := Entry{Kind: kind, Path: path, Mode: permissions(st), UID: st.Uid, GID: st.Gid, Mtime: timeOf(st.Mtim), Identity: identity(st)}
	if kind == File {
		e.Size = st.Size
	}
	return e
}

// same reports whether nothing was changed between the two.
func same(a, b *unix.Stat_t) bool {
	return a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim && a.Mode == b.Mode
}

// special is what a file is that is not recorded.
func special(st *unix.Stat_t) string {
	switch {
	case isType(st, unix.S_IFIFO):
		return "a fifo"
	case isType(st, unix.S_IFSOCK):
		return "a socket"
	case isType(st, unix.S_IFCHR) || isType(st, unix.S_IFBLK):
		return "a device"
	}
	return errChanged.Error()
}

// cause is an error without the path, which is said anyway.
func cause(err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
