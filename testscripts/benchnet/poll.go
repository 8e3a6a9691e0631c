package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The client and the server are one thread each, which waits for all of its
// sockets and calls the kernel itself: what they cost is taken from the gateways,
// which share the processors with them.

// poller waits for sockets.
type poller struct {
	fd     int
	events [128]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("wait for sockets: %w", err)
	}
	return &poller{fd: fd}, nil
}

// add has wait tell of a socket, once whenever something has changed about it.
func (p *poller) add(fd int) error {
	e := unix.EpollEvent{Fd: int32(fd), Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("wait for a socket: %w", err)
	}
	return nil
}

// wait waits until something has changed. The runtime is not told: it has nothing
// else to run.
func (p *poller) wait() ([]unix.EpollEvent, error) {
	const never = ^uintptr(0) // -1 milliseconds
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), never, 0, 0)
		switch errno {
		case 0:
			return p.events[:n], nil
		case unix.EINTR:
		default:
			return nil, fmt.Errorf("wait for sockets: %w", errno)
		}
	}
}

// socket makes a TCP socket that does not block. Its congestion control is the one
// that Linux has of itself, whatever this host's was configured to: a guest's
// kernel is another one.
func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	return fd, unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
}

// discard takes what has come to a socket, n bytes at most, without looking at it
// (tcp(7), MSG_TRUNC).
func discard(fd int, n int) (int, error) {
	m, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, uintptr(n), unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(m), nil
}
