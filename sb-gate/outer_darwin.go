package main

import "golang.org/x/sys/unix"

// unsentBytes is how much of what was written has not left yet. macOS tells only
// what has not been acknowledged, some of which has left: in doubt it all has.
func unsentBytes(int) int { return 0 }

// unreadBytes is how much has come and was not read.
func unreadBytes(fd int) int {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NREAD)
	if err != nil {
		return 0
	}
	return n
}

// takeNoMore has no counterpart here: what comes between the count and the end is
// not in the count.
func takeNoMore(int) {}

func readNow(fd int, b []byte) (int, error) { return unix.Read(fd, b) }

func writeNow(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
