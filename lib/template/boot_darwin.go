package template

import "golang.org/x/sys/unix"

// bootID tells one run of this host's kernel from another.
func bootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }
