package undo

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// clone: macOS clones to a new name only. A copy does.
func clone(to, from *os.File) error { return errors.ErrUnsupported }

// settle makes f durable, and with all the others of its file system.
func settle(f *os.File, all bool) error {
	if all {
		unix.Sync()
	}
	return f.Sync()
}
