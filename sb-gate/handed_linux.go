package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// States of linux/tcp_states.h.
const (
	tcpFinWait1  = 4
	tcpTimeWait  = 6
	tcpClosed    = 7
	tcpCloseWait = 8
	tcpLastAck   = 9
	tcpClosing   = 11
)

// countHanded reads TCP_INFO, in which an end that came counts as a byte received,
// and one that waits to go out as one unsent. plainly: both sides have ended it.
func countHanded(fd int, plainly bool) (n handedCount) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return n
	}
	n.sent = int64(info.Bytes_sent - info.Bytes_retrans)
	n.unsent = int64(info.Notsent_bytes)
	n.received = int64(info.Bytes_received)
	switch info.State {
	case tcpFinWait1, tcpLastAck, tcpClosing:
		n.unsent = max(0, n.unsent-1)
	}
	switch info.State {
	case tcpTimeWait, tcpCloseWait, tcpLastAck, tcpClosing:
		n.received = max(0, n.received-1)
	case tcpClosed: // by ends that were acknowledged, or by a reset
		if plainly {
			n.received = max(0, n.received-1)
		}
	}
	return n
}

// writeNoMore has the kernel refuse what anybody writes from now on.
func writeNoMore(fd int) { unix.Shutdown(fd, unix.SHUT_WR) }

// resetNow sends a reset, whoever else has the connection open: a connected
// socket that is connected to nothing is aborted (tcp_disconnect).
func resetNow(fd int) {
	nowhere := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&nowhere)), unsafe.Sizeof(nowhere))
}
