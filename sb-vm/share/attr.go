//go:build linux

package share

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

// statFD is statx on a descriptor, which may be an O_PATH one.
func statFD(fd int, st *unix.Statx_t) error {
	return restart(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, statMask, st)
	})
}

// statAt is statx on a name in the directory fd. The name is one component.
func statAt(fd int, name string, st *unix.Statx_t) error {
	return restart(func() error {
		return unix.Statx(fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, statMask, st)
	})
}

// restart repeats a system call that a signal broke off: the runtime's own
// signals reach file systems that do not restart by themselves.
func restart(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func inodeOf(st *unix.Statx_t) Inode {
	return Inode{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}
}

func fileType(st *unix.Statx_t) uint16 { return st.Mode & unix.S_IFMT }

// stamp is the state of a file as far as its change shows in it: a change of
// any kind changes the ctime.
type stamp struct {
	ctime, mtime int64 // ns
	size         uint64
}

func stampOf(st *unix.Statx_t) stamp {
	return stamp{ns(st.Ctime), ns(st.Mtime), st.Size}
}

func ns(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// fresh is a state so young that another change could follow within the same
// tick of the file system's clock and not show.
func (s stamp) fresh(now time.Time) bool {
	return now.UnixNano()-s.ctime < int64(tick)
}

// tick is more than the time between two ticks of the clock that file systems
// take their times from, which is 10 ms at most.
const tick = 20 * time.Millisecond

// appendAttr appends a struct fuse_attr: st as the guest may see it.
func (s *session) appendAttr(b []byte, st *unix.Statx_t) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, s.devices.number(st))
	b = le.AppendUint64(b, st.Size)
	b = le.AppendUint64(b, st.Blocks)
	for _, t := range []unix.StatxTimestamp{st.Atime, st.Mtime, st.Ctime} {
		b = le.AppendUint64(b, uint64(t.Sec))
	}
	for _, t := range []unix.StatxTimestamp{st.Atime, st.Mtime, st.Ctime} {
		b = le.AppendUint32(b, t.Nsec)
	}
	b = le.AppendUint32(b, uint32(st.Mode))
	b = le.AppendUint32(b, st.Nlink)
	b = le.AppendUint32(b, s.x.uid.toGuest(st.Uid))
	b = le.AppendUint32(b, s.x.gid.toGuest(st.Gid))
	b = le.AppendUint32(b, 0) // rdev: no device is usable through a share
	b = le.AppendUint32(b, st.Blksize)
	return le.AppendUint32(b, 0) // flags
}

// appendEntry appends a struct fuse_entry_out.
func (s *session) appendEntry(b []byte, id uint64, ttl ttls, st *unix.Statx_t) []byte {
	return s.appendAttr(appendEntryHead(b, id, ttl), st)
}

// appendEntryHead appends a struct fuse_entry_out without its attr.
func appendEntryHead(b []byte, id uint64, ttl ttls) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, id)
	b = le.AppendUint64(b, 0) // generation: ids are never used again
	b = le.AppendUint64(b, uint64(ttl.entry/time.Second))
	b = le.AppendUint64(b, uint64(ttl.attr/time.Second))
	b = le.AppendUint32(b, uint32(ttl.entry%time.Second))
	return le.AppendUint32(b, uint32(ttl.attr%time.Second))
}

// appendAbsent appends a struct fuse_entry_out for a name that does not exist,
// which the guest may believe for ttl.
func appendAbsent(b []byte, ttl time.Duration) []byte {
	b = appendEntryHead(b, 0, ttls{entry: ttl})
	return append(b, make([]byte, attrSize)...)
}

// appendAttrOut appends a struct fuse_attr_out.
func (s *session) appendAttrOut(b []byte, ttl time.Duration, st *unix.Statx_t) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(ttl/time.Second))
	b = le.AppendUint32(b, uint32(ttl%time.Second))
	b = le.AppendUint32(b, 0)
	return s.appendAttr(b, st)
}

const (
	attrSize  = 88  // struct fuse_attr
	entrySize = 128 // struct fuse_entry_out
)
