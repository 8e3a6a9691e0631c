package link

import (
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
)

// macOS has no call for many frames.
type vectors struct{}

func (vectors) room(int)         {}
func (vectors) into(int, []byte) {}

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

// read reads the frames that are there, as many as there is room for, and calls
// each with the place and the size of one. They stay as they are until it is
// called again.
func (in *inbox) read(fd int, each func(place **buffer.View, size int)) error {
	in.refill()
	for n := 0; n < len(in.places); {
		size, err := unix.Read(fd, in.places[n].AsSlice())
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && n > 0:
			return nil
		case err != nil:
			return err
		}
		each(&in.places[n], size)
		n++
	}
	return nil
}
