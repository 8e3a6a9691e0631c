package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// confineSelf turns core files off. macOS has no way for a process without a
// profile of its own to give more up.
func confineSelf() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turn core files off: %w", err)
	}
	return nil
}
