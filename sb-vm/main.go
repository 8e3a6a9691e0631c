// Sb-vm boots a sandbox's machine: one network device whose wire is a descriptor
// that it was given, disks, shares, and one stream to the guest.
//
// It opens no network socket. On Linux the machine is QEMU's, which runs
// confined; on macOS it is Virtualization.framework's.
package main

import "sb/lib/say"

func main() { say.Main("sb-vm", run) }
