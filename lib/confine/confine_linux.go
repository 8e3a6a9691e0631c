// Package confine takes away from a process what its job does not need, by what
// the host's kernel offers: namespaces (no network, no files), Landlock (files,
// connections, signals), seccomp (system calls) and no new privileges. Each layer
// holds without the others; what a kernel lacks is named, not passed over.
package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// View is the files that a process sees. Directories stand for all beneath them.
type View struct {
	Read  []string // read, and mapped as code
	Write []string // read and written, as files; as directories, also made and removed
	Exec  []string // read and started
	Dial  bool     // besides the files: connect to TCP ports
}

// Namespaces is how far a process can be set apart.
type Namespaces int

const (
	Full  Namespaces = iota // its own user, mount, network and IPC namespaces
	Plain                   // the same without a user namespace, for root where those cannot be made
	None
)

// Apart is how a command is started in namespaces of its own, at the given level,
// to end with the thread that starts it: its caller must lock that thread and
// keep it until the command has ended. files: as root, it still may read and
// write what belongs to other users.
func Apart(level Namespaces, files bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if level == None {
		return attr
	}
	attr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	if level == Plain {
		return attr
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	uid, gid, size := os.Geteuid(), os.Getegid(), 1
	if uid == 0 && files {
		gid, size = 0, 1<<32-1
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: size}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: size}}
	attr.GidMappingsEnableSetgroups = uid == 0
	if uid != 0 {
		// A program that is started would have none of the namespace's rights,
		// and needs those that NewRoot and DropCapabilities use.
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
	}
	return attr
}

// Levels are the levels to try, best first, each with what it lacks.
func Levels() []Namespaces {
	if os.Geteuid() == 0 {
		return []Namespaces{Full, Plain, None}
	}
	return []Namespaces{Full, None}
}

// Lacks names what a level does not give.
func (n Namespaces) Lacks() string {
	switch n {
	case Plain:
		return "a user namespace"
	case None:
		return "user, mount, network and IPC namespaces"
	}
	return ""
}

// NewRoot makes the files of v the whole file system of this process, which must
// be in a mount namespace of its own.
func NewRoot(v View) error {
	const at = "/proc" // covered in this namespace alone, and a mount point in a chroot too
	type tree struct {
		path string
		fd   int
		dir  bool
	}
	var trees []tree
	for _, path := range concat(v.Read, v.Write, v.Exec) {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("open %s for the new root: %w", path, err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		trees = append(trees, tree{path, fd, st.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if errors.Is(err, unix.EINVAL) {
		// In a chroot that is no mount point: at is one, and nothing is mounted
		// but on it, so the host sees none of it.
		err = unix.Mount("", at, "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("make a new root: %w", err)
	}
	for _, t := range trees {
		to := filepath.Join(at, t.path)
		if err := mountPoint(to, t.dir); err != nil {
			return err
		}
		if err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s in the new root: %w", t.path, err)
		}
	}
	return enter(at)
}

func mountPoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

// enter makes the mount at dir the root. Where the root cannot be exchanged, as
// in a chroot, it is left behind: who has no capability cannot return.
func enter(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	err := unix.PivotRoot(".", ".")
	if err == nil {
		// The old root lies on top of the new one now.
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return fmt.Errorf("leave the old root: %w", err)
		}
		return unix.Chdir("/")
	}
	if !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("enter the new root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	return unix.Chdir("/")
}

// Files lets this process, all its threads, see only the files of v from now on,
// and neither connect (unless v.Dial) nor signal out of itself, as far as Landlock
// can say so.
// lacks names what this kernel cannot restrict.
func Files(v View) (lacks string, err error) {
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return "Landlock", nil
	}
	var rules []landlock.Rule
	for _, path := range v.Read {
		rules = append(rules, readRule(path, 0))
	}
	for _, path := range v.Exec {
		rules = append(rules, readRule(path, fsExecute))
	}
	for _, path := range v.Write {
		rules = append(rules, writeRule(path))
	}
	if err := restrict(landlock.V7.BestEffort(), v.Dial, rules); err != nil {
		return "", fmt.Errorf("restrict files with Landlock: %w", err)
	}
	if abi < 6 {
		return fmt.Sprintf("parts of Landlock (this kernel has version %d of 6)", abi), nil
	}
	return "", nil
}

func restrict(c landlock.Config, dial bool, rules []landlock.Rule) error {
	if !dial {
		return c.Restrict(rules...)
	}
	if err := c.RestrictPaths(rules...); err != nil {
		return err
	}
	return c.RestrictScoped()
}

// The rights of linux/landlock.h.
const (
	fsExecute  = landlock.AccessFSSet(1 << 0)
	fsReadFile = landlock.AccessFSSet(1 << 2)
	fsReadDir  = landlock.AccessFSSet(1 << 3)
)

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func readRule(path string, more landlock.AccessFSSet) landlock.Rule {
	rights := fsReadFile | more
	if isDir(path) {
		rights |= fsReadDir
	}
	return landlock.PathAccess(rights, path)
}

func writeRule(path string) landlock.Rule {
	if isDir(path) {
		return landlock.RWDirs(path).WithRefer()
	}
	if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeDevice != 0 {
		return landlock.RWFiles(path).WithIoctlDev()
	}
	return landlock.RWFiles(path)
}

// DropCapabilities leaves the calling thread with keep alone, for good: neither
// root's user id nor a file gives any back. Before an exec, on the thread that
// does it.
func DropCapabilities(keep ...uint) error {
	return drop(keep, func(trap, a, b, c uintptr) syscall.Errno {
		_, _, errno := syscall.RawSyscall(trap, a, b, c)
		return errno
	})
}

// DropAllThreads is DropCapabilities for every thread of this process.
func DropAllThreads(keep ...uint) error {
	return drop(keep, func(trap, a, b, c uintptr) syscall.Errno {
		_, _, errno := syscall.AllThreadsSyscall(trap, a, b, c)
		return errno
	})
}

func drop(keep []uint, call func(trap, a, b, c uintptr) syscall.Errno) error {
	const noRoot, noRootLocked, noAmbient, noAmbientLocked = 1 << 0, 1 << 1, 1 << 6, 1 << 7 // linux/securebits.h
	ok := func(errno syscall.Errno) bool { return errno == 0 || errno == syscall.EPERM || errno == syscall.EINVAL }
	var want uint64
	for _, c := range keep {
		want |= 1 << c
	}
	// An ordinary user may set neither; there is nothing to set then.
	if errno := call(syscall.SYS_PRCTL, unix.PR_SET_SECUREBITS, noRoot|noRootLocked|noAmbient|noAmbientLocked, 0); !ok(errno) {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if want&(1<<c) != 0 {
			continue
		}
		if errno := call(syscall.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); !ok(errno) {
			return fmt.Errorf("drop capabilities: %w", errno)
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	for i := range caps {
		caps[i].Permitted &= uint32(want >> (32 * i))
		caps[i].Effective, caps[i].Inheritable = caps[i].Permitted, 0
	}
	hdr = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if errno := call(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&caps[0])), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

func concat(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
