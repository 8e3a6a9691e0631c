package main

import (
	"fmt"
	"syscall"

	"sb/lib/confine"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// confineSelf takes away what the broker has no use for once its wires are open:
// every file, every new socket, every program; and whoever could look at its
// memory, a core file included. What it is handed goes on working.
func confineSelf() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turn core files off: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep others from reading memory: %w", err)
	}
	moreFiles()
	files, err := confine.Files(confine.View{})
	if err != nil {
		return err
	}
	calls, err := confine.Calls(false, false)
	if err != nil {
		return err
	}
	for _, lacks := range []string{files, calls} {
		if lacks != "" {
			say.Warn("sb-broker is not confined by %s: this host's kernel has none", lacks)
		}
	}
	return nil
}

// moreFiles raises the limit of open descriptors: a connection has two.
func moreFiles() {
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) == nil {
		lim.Cur = lim.Max
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
	}
}
