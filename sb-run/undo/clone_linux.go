package undo

import (
	"os"

	"golang.org/x/sys/unix"
)

// clone makes to a copy of from that shares its blocks until either is changed.
func clone(to, from *os.File) error {
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
}

// settle makes f durable, and with all the others of its file system.
func settle(f *os.File, all bool) error {
	if all {
		return unix.Syncfs(int(f.Fd()))
	}
	return f.Sync()
}
