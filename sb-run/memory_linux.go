package main

import (
	"sb/lib/manifest"

	"golang.org/x/sys/unix"
)

// hostMemory is how much this host has, 0 if that is not known.
func hostMemory() manifest.Size {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return manifest.Size(uint64(info.Totalram) * uint64(info.Unit))
}
