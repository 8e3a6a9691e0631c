//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

// withDisk has a disk itself mounted for as long as act runs, grown to size if that
// is not 0: behind the root's overlay nobody reaches it. What act mounts of it stays.
func withDisk(device string, size int64, act func(disk string) error) error {
	at, err := os.MkdirTemp("/", ".sb-disk-")
	if err != nil {
		return err
	}
	defer os.Remove(at)
	if err := unix.Mount(device, at, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount the disk %s: %w", device, err)
	}
	err = growMounted(at, size)
	if err == nil {
		err = act(at)
	}
	return errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
}

func growMounted(at string, size int64) error {
	if size == 0 {
		return nil
	}
	root, err := os.Open(at)
	if err != nil {
		return err
	}
	defer root.Close()
	return growDisk(root, size)
}

// mountCopy mounts a share with the guest's own disk over it, under own.
func (g *guest) mountCopy(s machine.Share, own string) error {
	lower, upper, work := own+"/lower", own+"/upper", own+"/work"
	for _, dir := range []string{lower, upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	served := s
	served.Target = lower // without the signs that mean something among mount options
	if err := g.mountServed(served); err != nil {
		return err
	}
	if st, err := os.Stat(lower); err == nil { // the root of what is seen is the upper one's
		os.Chmod(upper, st.Mode().Perm())
	}
	if err := os.Chown(upper, int(s.UID), int(s.GID)); err != nil {
		return err
	}
	data := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", s.Target, "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, data); err != nil {
		return fmt.Errorf("mount the guest's own disk over it: %w", err)
	}
	return nil
}

// mountPrivate mounts own, a directory of the guest's disk, in a share.
func mountPrivate(s machine.Share, dir, own string) error {
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	if err := os.Chown(own, int(s.UID), int(s.GID)); err != nil {
		return err
	}
	target := filepath.Join(s.Target, dir)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	root, err := unix.Open(s.Target, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	// No link on the way: it would lead the mount to another place.
	fd, err := unix.Openat2(root, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fmt.Errorf("%s must be a directory, and no link: %w", target, err)
	}
	defer unix.Close(fd)
	return unix.Mount(own, fmt.Sprintf("/proc/self/fd/%d", fd), "", unix.MS_BIND, "")
}
