//go:build linux

// Sb-guest is the program inside the guest: process 1 of the machine that sb-vm
// boots. It mounts the file systems, configures the network, serves the host's
// commands on the guest stream and reaps what they leave.
//
// It holds nothing that root in the guest may not have: the boundary is outside.
package main

import (
	"os"

	"sb/lib/say"
	"sb/sb-vm/guest/fuse"

	"golang.org/x/sys/unix"
)

func main() { say.Main("sb-guest", run) }

func run(args []string) error {
	if len(args) > 0 && args[0] == "share" {
		return fuse.Main(args[1:])
	}
	if os.Getpid() != 1 {
		return say.Usage("sb-guest is process 1 of a guest; sb-vm boots it")
	}
	failed(boot())
	return nil
}

// failed says why the machine cannot go on and powers it off. Were process 1 to
// end, the kernel would panic, and some hypervisors would start it again.
func failed(err error) {
	say.Report(os.Stderr, err)
	unix.IoctlSetInt(2, unix.TCSBRK, 1) // until it is written
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
