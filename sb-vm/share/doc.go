//go:build linux

// Package share serves a directory of the host to a Linux guest.
//
// The guest's kernel speaks FUSE; a relay in the guest (sb-vm/guest/fuse) copies
// its messages to a stream, and Serve answers them. Whoever is root in the guest
// can put any bytes on that stream, so nothing in a message is believed:
//
//   - A request names a file by a number that we gave, and a name in it is one
//     component. Paths are made of names that we saw ourselves and opened from
//     the root with openat2, beneath it and through no symbolic link; what is
//     found there must be the file that the number stands for.
//   - What may be changed, seen or made is judged here, for every request.
//     A file of several names is judged by those at the paths of rules and below,
//     too. A hard link to a file of a name that is protected or hidden at any
//     depth, made on the host, is not protected or hidden under its other name.
//   - Devices, FIFOs and sockets are never opened; file systems that are the
//     kernel's own (proc and the like) end at their mount point.
//   - Every length, count and table has a bound; a message that no kernel sends
//     ends the share.
//
// Ownership. What the guest makes belongs to the user that this process runs as,
// and what that user owns is shown as the guest's user's; chown is accepted and
// changes nothing. Set-user-ID and set-group-ID bits that the guest sets are
// left out. Of the extended attributes there are only those of users ("user.").
// Locks (flock, fcntl) hold within the guest, not between guest and host. ioctl
// is refused.
//
// Coherence. What the host changes is seen in the guest within a second, and
// what the guest writes is on the host when write returns; what it writes
// through a shared mapping when it is closed or synced. The guest's kernel keeps
// what it learned of directories in which inotify tells us of changes, and is
// called back; elsewhere (network file systems, no more watches) it asks again
// after half a second. Three changes make no event: a host's write through a mapping,
// seen when the writer closes the file; one by a hard link in another directory
// that was made after the guest looked; and one on another machine, if a network
// file system claims to be a local one. They are seen when the file is opened
// again, or after ten minutes at most.
//
// What it needs: /proc/self/fd (opened once at the start; used to open again
// what an O_PATH descriptor holds, and by inotify, which takes only paths), the
// kernel of Debian 12 or later (6.1), and of system calls, besides the Go
// runtime's: openat, openat2, statx, fstatfs, getdents64, pread64, pwrite64,
// lseek, ftruncate, fallocate, fsync, fdatasync, copy_file_range, mkdirat,
// mknodat, symlinkat, linkat, unlinkat, renameat2, readlinkat, utimensat,
// fchmodat, fchmodat2, fchmod, fcntl, the f*xattr calls and inotify's. A Landlock
// domain must allow everything beneath the root but making devices, REFER
// included, or renames between directories fail.
package share
