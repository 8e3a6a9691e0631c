//go:build linux

package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk is the root of the writable file system, opened before it goes out of
// reach behind the overlay.
var disk *os.File

func growHandle() (err error) {
	disk, err = os.Open(diskAt)
	return err
}

// ext4ResizeFS is EXT4_IOC_RESIZE_FS of fs/ext4/ext4.h: _IOW('f', 16, __u64).
const ext4ResizeFS = 0x40086610

// growDisk grows the writable file system of root to size bytes: its disk is a clone of
// a small one, in a file of the size that was asked for.
func growDisk(root *os.File, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return fmt.Errorf("grow the disk: %w", err)
	}
	blocks := uint64(size / st.Bsize)
	if blocks <= st.Blocks {
		return nil
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), ext4ResizeFS, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return fmt.Errorf("grow the disk to %d bytes: %w", size, errno)
	}
	return nil
}
