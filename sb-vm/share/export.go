//go:build linux

package share

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Inode names a file of the host whatever its path: st_dev and st_ino.
type Inode struct {
	Dev uint64
	Ino uint64
}

// Export is one directory as the guest may see it. The zero value of a field
// gives the guest nothing more than another value would, but for ReadOnly,
// Hidden, HiddenInodes and Protected: a caller that forgets them shares a
// directory that the guest can read and write.
type Export struct {
	// Root is the directory, opened with O_PATH|O_DIRECTORY. It stays the
	// caller's, who may close it when Serve has returned.
	Root *os.File

	// ReadOnly refuses every request that changes something (EROFS).
	ReadOnly bool

	// Hidden are patterns of what does not exist for the guest and cannot be
	// made by it. Protected are patterns of what it can read but not change,
	// rename, remove, replace or link to, and not make where it is absent.
	//
	// A pattern with a slash is a path from the root, its components globs as
	// in path.Match: "/.env", ".git/hooks", "packages/*/.npmrc". One without a
	// slash is a glob for a name at any depth: ".env*". Both hold for all that
	// lies below, and whatever the case of the letters. The directories above a
	// path pattern cannot be renamed away, nor replaced, nor be made as
	// anything but a directory; those above a name pattern can.
	//
	// Patterns are about names. What a symbolic link of that name points to is
	// another file. A pattern that is a path means the files themselves, there
	// and below: a further hard link that the host made is judged alike, from
	// the next look at these paths on (50 ms, and 40 µs for each file below). If
	// there are more files than can be looked at (262144 in all, 64 directories
	// deep), or one cannot be read, every file of several names is protected;
	// one that would be hidden shows by its other name then. A pattern that is
	// a name at any depth does not mean the file: a hard link to it that the
	// host made can be seen and changed by its other name.
	// What the host makes by another name and then renames to a protected one can be
	// changed under the other, and by a file or link that the guest had of it: a
	// program that does so has names of its own that are protected too.
	Hidden    []string
	Protected []string

	// Shadowed are path patterns, as of Protected, of what the guest can change
	// for itself: the first change copies the file or the directory into Store,
	// and from then on the guest sees what is there instead of the host's. It
	// cannot take away or rename what the host has there, nor link or rename
	// between what is shadowed and what is not (EXDEV). Without a Store, what is
	// shadowed is protected. An entry of the store is called by ShadowName.
	Shadowed []string
	Store    *os.File // as Root, but beneath no share

	// HiddenInodes are further files that do not exist for the guest, by
	// whatever path it comes to them: the directories of sb itself, which a
	// bind mount could bring into the share under another name. Where one lies
	// beneath the root by path, name that path in Hidden as well: only then can
	// the directories above it not be renamed away. A root that is one of them
	// is refused; whether it lies in one the caller must know.
	HiddenInodes []Inode

	// GuestUID and GuestGID own in the guest what the user and the group that
	// this process runs as own on the host. Other ids show as they are, but one
	// that would be taken for these shows as 65534. Whoever makes a file in the
	// guest, on the host it belongs to this process's user; the guest's chown
	// is accepted and changes nothing.
	GuestUID uint32
	GuestGID uint32
}

const nobody = 65534

// export is an Export that was checked, with what serving it needs.
type export struct {
	root     int // duplicate of Root
	fds      int // O_PATH on /proc/self/fd: opens a descriptor's file again
	rootStat unix.Statx_t
	readOnly bool
	rules    rules
	store    *store // nil without one
	hidden   map[Inode]bool
	uid, gid ids
	asRoot   bool // the host lets this process do what a file's mode forbids
	limits   limits
}

// ids translates ids of the host into the guest's.
type ids struct{ host, guest uint32 }

func (m ids) toGuest(id uint32) uint32 {
	switch id {
	case m.host:
		return m.guest
	case m.guest:
		return nobody
	}
	return id
}

// limits are what one share may hold.
type limits struct {
	nodes   int // files and directories the guest knows
	handles int // open files and directories of the guest
	places  int // open directories kept for resolving
	watches int // directories watched for changes made on the host
	ruled   int // entries of directories at rules' paths, read for their files
}

func newExport(e Export) (*export, error) {
	if e.Root == nil {
		return nil, fmt.Errorf("share: no root directory was given")
	}
	protect, shadow := e.Protected, e.Shadowed
	if e.Store == nil {
		protect, shadow = append(slices.Clip(protect), shadow...), nil
	}
	rules, err := newRules(e.Hidden, protect, shadow)
	if err != nil {
		return nil, err
	}
	x := &export{
		root: -1, fds: -1, readOnly: e.ReadOnly, rules: rules, hidden: map[Inode]bool{},
		uid:    ids{uint32(os.Geteuid()), e.GuestUID},
		gid:    ids{uint32(os.Getegid()), e.GuestGID},
		asRoot: os.Geteuid() == 0,
		limits: newLimits(),
	}
	for _, i := range e.HiddenInodes {
		x.hidden[i] = true
	}
	if x.store, err = openStore(e.Store); err != nil {
		x.close()
		return nil, fmt.Errorf("share %s: %w", e.Root.Name(), err)
	}
	if err := x.open(e.Root); err != nil {
		x.close()
		return nil, fmt.Errorf("share %s: %w", e.Root.Name(), err)
	}
	return x, nil
}

func (x *export) open(root *os.File) (err error) {
	if x.root, err = unix.FcntlInt(root.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	if err = statFD(x.root, &x.rootStat); err != nil {
		return err
	}
	if x.rootStat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	if x.hidden[inodeOf(&x.rootStat)] {
		return fmt.Errorf("it is one of the directories that must stay hidden")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(x.root, &fs); err != nil {
		return err
	}
	if pseudo(int64(fs.Type)) {
		return fmt.Errorf("it is no directory of files but one of the kernel's (file system type %#x)", fs.Type)
	}
	x.fds, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /proc/self/fd, through which files are opened: %w", err)
	}
	return nil
}

func (x *export) close() {
	for _, fd := range []int{x.root, x.fds} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	x.store.close()
}

// newLimits derives them from what the process may have open: the Go runtime
// has raised RLIMIT_NOFILE's soft limit to the hard one.
func newLimits() limits {
	l := limits{nodes: 1 << 19, handles: 1 << 16, places: 1024, watches: 1 << 16, ruled: 1 << 18}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		l.handles = int(min(uint64(l.handles), r.Cur/2))
		l.places = int(min(uint64(l.places), r.Cur/8))
	}
	// Half of what the user may watch: editors watch too.
	if b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil {
		var n int
		if _, err := fmt.Sscan(string(b), &n); err == nil {
			l.watches = min(l.watches, n/2)
		}
	}
	return l
}
