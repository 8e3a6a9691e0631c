package keep

import "golang.org/x/sys/unix"

// hide keeps the memory of this process from a core file, and from other
// processes of the user that would trace it.
func hide() {
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
