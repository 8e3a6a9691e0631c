package template

import "os"

// bootID tells one run of this host's kernel from another.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(b), err
}
