package keep

import "golang.org/x/sys/unix"

// hide keeps the memory of this process from a core file.
func hide() { unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }
