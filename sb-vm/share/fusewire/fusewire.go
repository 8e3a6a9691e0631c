// Package fusewire is what a share's stream carries: FUSE messages, one after
// the other, as linux/fuse.h (protocol 7.38) lays them out, little endian.
//
// A message begins with its own length, so nothing stands between two of them.
// The guest's kernel makes the requests, sb-vm/share answers them, and the relay
// in the guest (sb-vm/guest/fuse) copies both ways. One message is ours: Ack.
package fusewire

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Sizes in bytes.
const (
	InHeader  = 40      // struct fuse_in_header
	OutHeader = 16      // struct fuse_out_header
	MaxData   = 1 << 20 // most data in one READ or WRITE: 256 pages, the kernel's limit
	// MaxMessage bounds a message either way: the data and what goes before it.
	MaxMessage = MaxData + 4096
	// MaxNotice bounds a notification: its header, its struct and a name.
	MaxNotice = OutHeader + 16 + 256 + 8
)

// AckWindow is how many notifications may be on their way without an Ack. The
// kernel can make the writer of a notification wait until a reply has come, so
// the relay must be able to put this many aside and read on.
const AckWindow = 128

// Opcodes (enum fuse_opcode).
const (
	Lookup          = 1
	Forget          = 2
	Getattr         = 3
	Setattr         = 4
	Readlink        = 5
	Symlink         = 6
	Mknod           = 8
	Mkdir           = 9
	Unlink          = 10
	Rmdir           = 11
	Rename          = 12
	Link            = 13
	Open            = 14
	Read            = 15
	Write           = 16
	Statfs          = 17
	Release         = 18
	Fsync           = 20
	Setxattr        = 21
	Getxattr        = 22
	Listxattr       = 23
	Removexattr     = 24
	Flush           = 25
	Init            = 26
	Opendir         = 27
	Readdir         = 28
	Releasedir      = 29
	Fsyncdir        = 30
	Create          = 35
	Interrupt       = 36
	Destroy         = 38
	Ioctl           = 39
	BatchForget     = 42
	Fallocate       = 43
	Readdirplus     = 44
	Rename2         = 45
	Lseek           = 46
	CopyFileRange   = 47
	Tmpfile         = 51
	CopyFileRange64 = 53

	// Ack is ours: the relay tells the server that it has given one more
	// notification to its kernel. A header without a body.
	Ack = 0x53420001
)

// Flags of INIT (FUSE_ASYNC_READ and so on).
const (
	AsyncRead      = 1 << 0
	AtomicTrunc    = 1 << 3
	BigWrites      = 1 << 5
	AutoInvalData  = 1 << 12
	DoReaddirplus  = 1 << 13
	AsyncDIO       = 1 << 15
	ParallelDirops = 1 << 18
	MaxPages       = 1 << 22
	CacheSymlinks  = 1 << 23
	NoOpendir      = 1 << 24
	KillprivV2     = 1 << 28
)

// Bits of fuse_setattr_in.valid.
const (
	AttrMode     = 1 << 0
	AttrUID      = 1 << 1
	AttrGID      = 1 << 2
	AttrSize     = 1 << 3
	AttrAtime    = 1 << 4
	AttrMtime    = 1 << 5
	AttrFH       = 1 << 6
	AttrAtimeNow = 1 << 7
	AttrMtimeNow = 1 << 8
	AttrKillPriv = 1 << 11
)

// Other flags: of GETATTR, WRITE and FSYNC requests, of OPEN replies.
const (
	GetattrFH     = 1 << 0
	WriteKillPriv = 1 << 2
	FsyncData     = 1 << 0
	KeepCache     = 1 << 1
	CacheDir      = 1 << 3
)

// Codes of notifications (enum fuse_notify_code), in the place of the error.
const (
	InvalInode = 2
	InvalEntry = 3
)

// ErrMalformed is a message that the kernel's FUSE client does not send.
var ErrMalformed = errors.New("malformed message")

// Header is a struct fuse_in_header.
type Header struct {
	Len    uint32
	Op     uint32
	Unique uint64
	Node   uint64
	UID    uint32
}

// ParseHeader reads the header of a request from the first InHeader bytes of b.
// A length that no message can have is ErrMalformed.
func ParseHeader(b []byte) (Header, error) {
	le := binary.LittleEndian
	h := Header{
		Len: le.Uint32(b), Op: le.Uint32(b[4:]), Unique: le.Uint64(b[8:]),
		Node: le.Uint64(b[16:]), UID: le.Uint32(b[24:]),
	}
	// total_extlen: no extension was agreed on in INIT.
	if h.Len < InHeader || h.Len > MaxMessage || le.Uint16(b[36:]) != 0 {
		return h, ErrMalformed
	}
	return h, nil
}

// In reads the fields of a request's body in their order. Once a field was not
// there it returns zeros; End says so.
type In struct {
	b   []byte
	bad bool
}

// NewIn reads from b, which it does not copy.
func NewIn(b []byte) In { return In{b: b} }

func (d *In) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return nil
	}
	t := d.b[:n]
	d.b = d.b[n:]
	return t
}

// Skip passes over n bytes.
func (d *In) Skip(n int) { d.take(n) }

// U32 reads a __u32.
func (d *In) U32() uint32 {
	if t := d.take(4); t != nil {
		return binary.LittleEndian.Uint32(t)
	}
	return 0
}

// U64 reads a __u64.
func (d *In) U64() uint64 {
	if t := d.take(8); t != nil {
		return binary.LittleEndian.Uint64(t)
	}
	return 0
}

// Name reads a string that ends in a NUL, without it.
func (d *In) Name() string {
	i := bytes.IndexByte(d.b, 0)
	if d.bad || i < 0 {
		d.bad = true
		return ""
	}
	return string(d.take(i + 1)[:i])
}

// Data reads n bytes, which stay part of the message.
func (d *In) Data(n uint32) []byte {
	if uint64(n) > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	return d.take(int(n))
}

// End is ErrMalformed if a field was missing or something is left over.
func (d *In) End() error {
	if d.bad || len(d.b) > 0 {
		return ErrMalformed
	}
	return nil
}
