package fd

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const fdDir = "/dev/fd"

func socketpair(typ int) ([2]int, error) {
	// No SOCK_CLOEXEC here: hold the lock that a fork takes.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	p, err := unix.Socketpair(unix.AF_UNIX, typ, 0)
	if err == nil {
		unix.CloseOnExec(p[0])
		unix.CloseOnExec(p[1])
	}
	return p, err
}
