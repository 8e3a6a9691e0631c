//go:build linux

package share

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stream is the socket in blocking mode. The runtime's poller would cost each
// message two system calls and a switch of threads more.
type stream int

// newStream takes over conn, whichever way it ends.
func newStream(conn *os.File) (stream, error) {
	defer conn.Close()
	fd, err := unix.FcntlInt(conn.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || typ != unix.SOCK_STREAM {
		unix.Close(fd)
		return -1, fmt.Errorf("%s is not a stream socket", conn.Name())
	}
	return stream(fd), unix.SetNonblock(fd, false)
}

func (s stream) Read(b []byte) (n int, err error) {
	err = restart(func() error { n, err = unix.Read(int(s), b); return err })
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}

func (s stream) Write(b []byte) (done int, err error) {
	for done < len(b) {
		var n int
		err := restart(func() error { n, err = unix.Write(int(s), b[done:]); return err })
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// stop ends all reading and writing, also under way.
func (s stream) stop() { unix.Shutdown(int(s), unix.SHUT_RDWR) }

// close gives the descriptor back. Nothing may use it any more.
func (s stream) close() { unix.Close(int(s)) }
