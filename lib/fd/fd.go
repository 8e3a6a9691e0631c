// Package fd passes open descriptors between the sb tools.
//
// The tools meet through unnamed socket pairs, pipes and files that the
// composer opened; a tool is told their numbers by flags such as --frames=3.
// A name serves as the flag, the name of the os.File and the word in errors.
package fd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is what a descriptor must be to be taken.
type Kind int

const (
	Dgram  Kind = iota // one end of a SOCK_DGRAM pair: a record is a datagram
	Stream             // one end of a SOCK_STREAM pair
	Pipe               // anything that can be read to its end: a pipe, a FIFO or a stream socket
	Output             // anything that can be written: a file, a pipe, a terminal
	Input              // anything that can be read: a file, a pipe, a terminal
)

func (k Kind) String() string {
	return [...]string{"a datagram socket", "a stream socket", "a pipe or a stream socket", "open for writing", "open for reading"}[k]
}

// frameBuffer is what is asked for the datagrams that wait on a wire, in bytes. An
// ordinary user gets what net.core.wmem_max allows. The kernel's default holds
// three frames of 64 KiB.
const frameBuffer = 4 << 20

// Pair returns the two ends of an unnamed local socket pair, close-on-exec.
// The caller owns both.
func Pair(name string, kind Kind) (near, far *os.File, err error) {
	typ := unix.SOCK_STREAM
	if kind == Dgram {
		typ = unix.SOCK_DGRAM
	}
	p, err := socketpair(typ)
	if err != nil {
		return nil, nil, fmt.Errorf("make the %s pair: %w", name, err)
	}
	if kind == Dgram {
		for _, end := range p {
			unix.SetsockoptInt(end, unix.SOL_SOCKET, unix.SO_SNDBUF, frameBuffer)
			unix.SetsockoptInt(end, unix.SOL_SOCKET, unix.SO_RCVBUF, frameBuffer)
		}
	}
	return os.NewFile(uintptr(p[0]), name), os.NewFile(uintptr(p[1]), name), nil
}

// The errors of Take about a descriptor that the parent left none at: there is nothing,
// or something that was taken before or that this process opened itself.
var (
	ErrNotOpen = errors.New("is not open")
	ErrInUse   = errors.New("is in use by another flag or by this process")
)

// Take claims descriptor n, which the parent passed under the flag --name, and
// checks that it is what the tool needs. From then on the tool owns it, and a
// child does not inherit it.
func Take(name string, n int, kind Kind) (*os.File, error) {
	if n < 0 {
		return nil, fmt.Errorf("take %s: no descriptor was given (--%s=N)", name, name)
	}
	if err := check(n, kind); err != nil {
		return nil, fmt.Errorf("take %s: descriptor %d %w", name, n, err)
	}
	if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC != 0 {
		return nil, fmt.Errorf("take %s: descriptor %d %w", name, n, ErrInUse)
	}
	unix.CloseOnExec(n)
	if kind == Dgram || kind == Stream {
		// The runtime polls a socket only if it does not block.
		if err := unix.SetNonblock(n, true); err != nil {
			return nil, fmt.Errorf("take %s: descriptor %d: %w", name, n, err)
		}
	}
	return os.NewFile(uintptr(n), name), nil
}

func check(n int, kind Kind) error {
	var st unix.Stat_t
	if err := unix.Fstat(n, &st); err != nil {
		return ErrNotOpen
	}
	isSock := st.Mode&unix.S_IFMT == unix.S_IFSOCK
	typ := 0
	if isSock {
		typ, _ = unix.GetsockoptInt(n, unix.SOL_SOCKET, unix.SO_TYPE)
	}
	flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	acc := flags & unix.O_ACCMODE
	ok := false
	switch kind {
	case Dgram:
		ok = isSock && typ == unix.SOCK_DGRAM
	case Stream:
		ok = isSock && typ == unix.SOCK_STREAM
	case Pipe:
		ok = isSock && typ == unix.SOCK_STREAM || st.Mode&unix.S_IFMT == unix.S_IFIFO && acc != unix.O_WRONLY
	case Output:
		ok = acc != unix.O_RDONLY
	case Input:
		ok = acc != unix.O_WRONLY
	}
	if !ok {
		return fmt.Errorf("is not %s", kind)
	}
	return nil
}

// CloseRest closes every inherited descriptor above 2 that was not taken: a
// tool holds what it was told of and nothing else. What a process inherits is
// exactly what is open without close-on-exec, for Go opens everything with it.
// Call it after the last Take.
func CloseRest() error {
	dir, err := os.Open(fdDir)
	if err != nil {
		return fmt.Errorf("list the open descriptors: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return fmt.Errorf("list the open descriptors: %w", err)
	}
	for _, name := range names {
		var n int
		if _, err := fmt.Sscan(name, &n); err != nil || n < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(n)
		}
	}
	return nil
}

// Unread says whether f, which is open for writing, is a pipe, a socket or a
// terminal whose other end is gone. One who has nothing to write for now learns
// it in no other way.
func Unread(f *os.File) bool {
	p := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// Ready writes the readiness line, "ready VERSION", and closes f. A nil f is a
// composer that does not wait.
func Ready(f *os.File, version string) error {
	if f == nil {
		return nil
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "ready %s\n", version); err != nil {
		return fmt.Errorf("say that it is ready: %w", err)
	}
	return nil
}

// WaitReady reads the readiness line of a child. End of file instead of a line
// is a child that failed; another version is refused.
func WaitReady(r io.Reader, version string) error {
	line, err := io.ReadAll(io.LimitReader(r, 256))
	if err != nil {
		return err
	}
	text, ok := strings.CutSuffix(string(line), "\n")
	got, isReady := strings.CutPrefix(text, "ready ")
	switch {
	case len(line) == 0:
		return io.ErrUnexpectedEOF
	case !ok || !isReady:
		return fmt.Errorf("said %q instead of ready", text)
	case got != version:
		return fmt.Errorf("is version %s, this is %s: the tools of one release belong together", got, version)
	}
	return nil
}

// Dup returns another descriptor of what f is, close-on-exec.
func Dup(f *os.File) (*os.File, error) {
	n, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(n), f.Name()), nil
}

// Shutdown ends a stream socket for everybody who has it open, and closes f.
func Shutdown(f *os.File) error {
	err := unix.Shutdown(int(f.Fd()), unix.SHUT_RDWR)
	f.Close()
	return err
}

// Leash returns a channel that is closed when the far end of f is: when the
// composer ended, however it ended. A nil f never is.
func Leash(f *os.File) <-chan struct{} {
	end := make(chan struct{})
	if f != nil {
		go func() {
			io.Copy(io.Discard, f)
			close(end)
		}()
	}
	return end
}
