package link

import (
	"time"

	"golang.org/x/sys/unix"
)

type vectors struct{} // macOS has no call for many frames

// write writes what is left of the batch, and reports whether the machine does
// not take it because it does not read.
func (e *Endpoint) write(fd int) (full bool) {
	for tries := 0; e.out.left() > 0; {
		_, err := unix.Writev(fd, e.out.frame(e.out.sent))
		switch err {
		case unix.EINTR:
			continue
		case unix.ENOBUFS:
			// The socket's buffer is full. There is nothing to wait on.
			if tries++; tries <= 40 && !e.stuck {
				time.Sleep(50 * time.Microsecond)
				continue
			}
			e.stuck = true
			return true
		case unix.EAGAIN:
			return true
		}
		e.out.sent++ // or nobody is there to take it
		tries = 0
	}
	return false
}

// inbox is where frames are read to.
type inbox struct{ frame []byte }

func newInbox(size int) *inbox { return &inbox{make([]byte, size)} }

// read reads the frames that are there, a batch at most, and calls each with
// them.
func (in *inbox) read(fd int, each func([]byte)) error {
	for n := 0; n < maxBatch; {
		size, err := unix.Read(fd, in.frame)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && n > 0:
			return nil
		case err != nil:
			return err
		}
		each(in.frame[:size])
		n++
	}
	return nil
}
