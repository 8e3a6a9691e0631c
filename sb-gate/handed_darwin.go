package main

import "golang.org/x/sys/unix"

// countHanded reads TCP_CONNECTION_INFO. What waits to go out is not told apart
// from what waits to be acknowledged, so that it counts as sent.
func countHanded(fd int, plainly bool) (n handedCount) {
	info, err := unix.GetsockoptTCPConnectionInfo(fd, unix.IPPROTO_TCP, unix.TCP_CONNECTION_INFO)
	if err != nil {
		return n
	}
	n.sent, n.received = int64(info.Txbytes-info.Txretransmitbytes), int64(info.Rxbytes)
	if plainly {
		n.unsent = int64(info.Snd_sbbytes)
	}
	return n
}

// writeNoMore has the kernel refuse what anybody writes from now on.
func writeNoMore(fd int) { unix.Shutdown(fd, unix.SHUT_WR) }

// resetNow ends both directions, whoever else has the connection open. A reset
// follows when the last descriptor is closed.
func resetNow(fd int) { unix.Shutdown(fd, unix.SHUT_RDWR) }
