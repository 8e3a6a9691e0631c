//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

type mountAt struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func mountAll(all []mountAt) error {
	for _, m := range all {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
		}
	}
	return nil
}

// mountKernel mounts what the kernel itself provides.
func mountKernel() error {
	return mountAll([]mountAt{
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
	})
}

// loadModules loads the kernel's modules that came with the initramfs, in the
// order in which they need each other, and forgets the files.
func loadModules() error {
	order, err := os.ReadFile("/modules/order")
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel that has everything built in
	}
	if err != nil {
		return fmt.Errorf("load modules: %w", err)
	}
	for _, name := range strings.Fields(string(order)) {
		if err := loadModule("/modules/" + name + ".ko"); err != nil {
			return fmt.Errorf("load module %s: %w", name, err)
		}
	}
	return os.RemoveAll("/modules")
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST && err != unix.ENODEV {
		return err // ENODEV: hardware that this machine does not have
	}
	return nil
}

// openConsole has process 1 speak on the console, which may have come with a
// module only now. Without one it stays silent.
func openConsole() {
	fd, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for n := range 3 {
		unix.Dup3(fd, n, 0)
	}
	unix.Close(fd)
}

// The disks, in the order in which sb-vm attaches them.
const (
	baseDisk     = "/dev/vda" // the image, read-only
	writableDisk = "/dev/vdb" // what the sandbox changes
	keptDisk     = "/dev/vdc" // for private directories, if there is one
	diskAt       = "/sb/disk" // where the writable disk is mounted, beneath the root that is left behind
)

// enterRoot mounts the image with the writable disk over it and makes that the
// root, as switch_root does: an initramfs cannot be pivoted from.
func enterRoot() error {
	if err := mountAll([]mountAt{
		{baseDisk, "/sb/base", "erofs", unix.MS_RDONLY, ""},
		{writableDisk, diskAt, "ext4", unix.MS_NOATIME, ""},
	}); err != nil {
		return err
	}
	for _, dir := range []string{"/upper", "/work"} {
		if err := os.MkdirAll(diskAt+dir, 0o755); err != nil {
			return err
		}
	}
	const root = "/sb/root"
	overlay := "lowerdir=/sb/base,upperdir=" + diskAt + "/upper,workdir=" + diskAt + "/work"
	if err := mountAll([]mountAt{{"overlay", root, "overlay", unix.MS_NOATIME, overlay}}); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, root+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	// Process 1 goes on as the file that it was started from.
	if err := os.Remove("/init"); err != nil {
		return err
	}
	if err := growHandle(); err != nil {
		return err
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return mountRest()
}

// mountRest mounts what programs expect of a running system.
func mountRest() error {
	err := mountAll([]mountAt{
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,gid=5,ptmxmode=0666"},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	})
	if err != nil {
		return err
	}
	for _, l := range [][2]string{{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"}, {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}} {
		if err := os.Symlink(l[0], l[1]); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	// What a program of the image expects and an image may lack.
	for dir, mode := range map[string]os.FileMode{"/tmp": 0o1777, "/var/tmp": 0o1777, "/root": 0o700, "/run/lock": 0o1777} {
		if err := os.MkdirAll(dir, mode.Perm()); err != nil {
			return err
		}
		if err := os.Chmod(dir, mode.Perm()|os.ModeSticky*(mode&0o1000>>9)); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile replaces a file of /etc, which in an image may be a link to somewhere
// that does not exist here.
func replaceFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
