package erofs

import "os"

// punch leaves the bytes where they are: they cost room on the disk alone.
func punch(f *os.File, at, n int64) error { return nil }
