//go:build linux

package share

import (
	"sync"

	"golang.org/x/sys/unix"
)

// device is what a share knows of one of the host's file systems.
type device struct {
	index  uint64 // in the order they were met; 0 is the root's
	pseudo bool   // the kernel's own (proc, sysfs, …): not for a guest
	local  bool   // changes show as inotify events
	born   bool   // a file keeps its birth time
}

// devices are the file systems beneath the root: users mount file systems
// within their trees, so mounts are crossed.
type devices struct {
	mu   sync.RWMutex
	seen map[uint64]*device
}

// of is the device of st, whose file the descriptor fd of directory and name
// lead to; both are only used the first time.
func (d *devices) of(st *unix.Statx_t, fd int, name string) (*device, error) {
	dev := unix.Mkdev(st.Dev_major, st.Dev_minor)
	d.mu.RLock()
	known := d.seen[dev]
	d.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	fs, err := statfsAt(fd, name)
	if err != nil {
		return nil, err
	}
	typ := uint32(fs.Type)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen[dev] == nil {
		d.seen[dev] = &device{
			index:  uint64(len(d.seen)),
			pseudo: pseudo(int64(fs.Type)),
			local:  local[typ],
			// overlayfs shows another birth time once a file was written.
			born: typ != unix.OVERLAYFS_SUPER_MAGIC,
		}
	}
	return d.seen[dev], nil
}

func statfsAt(fd int, name string) (fs unix.Statfs_t, err error) {
	if name != "" {
		fd, err = unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return fs, err
		}
		defer unix.Close(fd)
	}
	return fs, restart(func() error { return unix.Fstatfs(fd, &fs) })
}

// number is the inode number that the guest sees. It sees one device, so the
// numbers of further file systems carry their device's index in the top bits.
func (d *devices) number(st *unix.Statx_t) uint64 {
	return st.Ino ^ d.index(unix.Mkdev(st.Dev_major, st.Dev_minor))<<48
}

func (d *devices) index(dev uint64) uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if known := d.seen[dev]; known != nil {
		return known.index
	}
	return 0
}

// pseudo tells the file systems whose files are the kernel's own objects: to
// open /proc/self/mem here would hand the guest this process.
func pseudo(typ int64) bool {
	switch uint32(typ) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
		unix.SECURITYFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEVPTS_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC,
		unix.BINDERFS_SUPER_MAGIC, unix.RDTGROUP_SUPER_MAGIC, unix.AAFS_MAGIC,
		unix.HUGETLBFS_MAGIC, unix.USBDEVICE_SUPER_MAGIC, unix.OPENPROM_SUPER_MAGIC,
		unix.PID_FS_MAGIC, unix.SECRETMEM_MAGIC, configfs, fusectl, mqueue, xenfs:
		return true
	}
	return false
}

// Magic numbers that linux/magic.h does not have: fs/configfs/mount.c,
// fs/fuse/control.c, ipc/mqueue.c, drivers/xen/xenfs/super.c.
const (
	configfs = 0x62656570
	fusectl  = 0x65735543
	mqueue   = 0x19800202
	xenfs    = 0xabba1974
)

// local are the file systems that nobody changes behind this kernel's back. On
// any other, a network's or a FUSE server's, an absent event means nothing.
var local = map[uint32]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.RAMFS_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.BCACHEFS_SUPER_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true, unix.REISERFS_SUPER_MAGIC: true,
	unix.NILFS_SUPER_MAGIC: true, unix.MSDOS_SUPER_MAGIC: true, unix.EXFAT_SUPER_MAGIC: true,
	zfs: true,
}

const zfs = 0x2fc12fc1 // OpenZFS, sys/fs/zfs.h
