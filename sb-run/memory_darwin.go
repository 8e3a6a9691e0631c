package main

import (
	"sb/lib/manifest"

	"golang.org/x/sys/unix"
)

// hostMemory is how much this host has, 0 if that is not known.
func hostMemory() manifest.Size {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return manifest.Size(n)
}
