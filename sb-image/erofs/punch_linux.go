package erofs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// punch makes a hole of n bytes. Where the file system cannot, the bytes stay.
func punch(f *os.File, at, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}
