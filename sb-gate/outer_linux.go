package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// takeNoMore has the kernel drop what still comes: it is neither counted nor
// acknowledged, and no acknowledgement lets more go out.
//
// A filter does that, and is a program that the kernel compiles: too much for each
// connection. So where nothing waits to go out, what comes is dropped by how far it
// has come (ip(7), IP_MINTTL), which a packet from a host on the same network may
// pass that begins with the largest number there is.
func takeNoMore(fd int) {
	// A socket of IPv4 refuses the first; one of IPv6 would take the second for nothing.
	if unsentBytes(fd) == 0 && (unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT, maxTTL) == nil ||
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MINTTL, maxTTL) == nil) {
		return
	}
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // of each packet, 0 bytes
	unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none})
}

const maxTTL = 255

// unsentBytes is how much of what was written has not left yet.
func unsentBytes(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQNSD)
	if err != nil {
		return 0
	}
	return n
}

// unreadBytes is how much has come and was not read.
func unreadBytes(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// readNow and writeNow are read and write on a socket that does not block. The
// runtime is not told of them: it would hand the processor to another thread
// meanwhile, and want it back right after.
func readNow(fd int, b []byte) (int, error) { return transferNow(unix.SYS_READ, fd, b) }

func writeNow(fd int, b []byte) (int, error) { return transferNow(unix.SYS_WRITE, fd, b) }

func transferNow(call uintptr, fd int, b []byte) (int, error) {
	n, _, err := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if err != 0 {
		return 0, err
	}
	return int(n), nil
}
