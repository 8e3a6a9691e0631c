package main

import "golang.org/x/sys/unix"

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
