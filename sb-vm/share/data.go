//go:build linux

package share

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// read is READ of a file.
func read(c *call) error {
	fh, offset, size := c.in.U64(), c.in.U64(), c.in.U32()
	c.in.Skip(20)
	if err := c.in.End(); err != nil {
		return err
	}
	if size > fusewire.MaxData || int64(offset) < 0 {
		return unix.EINVAL
	}
	h, err := c.s.handles.get(fh, c.h.Node)
	if err != nil {
		return err
	}
	defer c.s.handles.done(h)
	c.big = c.s.server.buffers.get(fusewire.OutHeader + int(size))
	n, err := preadFull(h.fd, c.big.b[fusewire.OutHeader:], int64(offset))
	if err != nil {
		return err
	}
	c.out = c.big.b[:fusewire.OutHeader+n]
	return nil
}

// preadFull reads until b is full or the file ends. Less than was asked for
// means the end to the guest's kernel.
func preadFull(fd int, b []byte, offset int64) (done int, err error) {
	for done < len(b) {
		var n int
		err := restart(func() (err error) {
			n, err = unix.Pread(fd, b[done:], offset+int64(done))
			return err
		})
		if err != nil && done == 0 {
			return 0, err
		}
		if n <= 0 {
			break
		}
		done += n
	}
	return done, nil
}

func write(c *call) error {
	fh, offset, size, flags := c.in.U64(), c.in.U64(), c.in.U32(), c.in.U32()
	c.in.Skip(16)
	data := c.in.Data(size)
	if err := c.in.End(); err != nil {
		return err
	}
	if size > fusewire.MaxData || int64(offset) < 0 {
		return unix.EINVAL
	}
	h, err := c.s.changeable(fh, c.h.Node)
	if err != nil {
		return err
	}
	defer c.s.handles.done(h)
	if flags&fusewire.WriteKillPriv != 0 {
		c.s.dropPriv(h)
	}
	done := 0
	for done < len(data) {
		var n int
		err := restart(func() (err error) {
			n, err = unix.Pwrite(h.fd, data[done:], int64(offset)+int64(done))
			return err
		})
		if err != nil && done == 0 {
			return err
		}
		if n <= 0 {
			break
		}
		done += n
	}
	c.out = binary.LittleEndian.AppendUint32(c.out, uint32(done))
	c.out = binary.LittleEndian.AppendUint32(c.out, 0)
	return nil
}

// changeable is a handle through which the guest may change its file, and is
// about to.
func (s *session) changeable(fh, node uint64) (*handle, error) {
	h, err := s.handles.get(fh, node)
	if err != nil {
		return nil, err
	}
	if !h.write {
		s.handles.done(h)
		return nil, unix.EBADF
	}
	s.changing(h.node)
	return h, nil
}

// dropPriv takes set-user-ID and set-group-ID bits from a file that is written
// to. The host's kernel does so itself, but not where this process runs as root.
func (s *session) dropPriv(h *handle) {
	if !h.priv || !s.x.asRoot {
		return
	}
	var st unix.Statx_t
	if statFD(h.fd, &st) == nil && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		unix.Fchmod(h.fd, uint32(st.Mode)&permissions)
	}
}

// fsync is FSYNC and FSYNCDIR, which has no handle.
func fsync(c *call) error {
	fh, flags := c.in.U64(), c.in.U32()
	c.in.Skip(4)
	if err := c.in.End(); err != nil {
		return err
	}
	if c.h.Op == fusewire.Fsyncdir {
		return c.fsyncdir()
	}
	h, err := c.s.handles.get(fh, c.h.Node)
	if err != nil {
		return err
	}
	defer c.s.handles.done(h)
	if flags&fusewire.FsyncData != 0 {
		return restart(func() error { return unix.Fdatasync(h.fd) })
	}
	return restart(func() error { return unix.Fsync(h.fd) })
}

func (c *call) fsyncdir() error {
	n, err := c.s.nodes.dir(c.h.Node)
	if err != nil {
		return err
	}
	at, err := c.s.list(c, n, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at.fd)
	return restart(func() error { return unix.Fsync(at.fd) })
}

// allocations are the modes of fallocate that change no other bytes than asked.
const allocations = unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_ZERO_RANGE

func fallocate(c *call) error {
	fh, offset, length, mode := c.in.U64(), c.in.U64(), c.in.U64(), c.in.U32()
	c.in.Skip(4)
	if err := c.in.End(); err != nil {
		return err
	}
	if mode&^allocations != 0 {
		return unix.EOPNOTSUPP
	}
	h, err := c.s.changeable(fh, c.h.Node)
	if err != nil {
		return err
	}
	defer c.s.handles.done(h)
	return restart(func() error { return unix.Fallocate(h.fd, mode, int64(offset), int64(length)) })
}

// lseek finds data and holes; other seeks do not leave the guest.
func lseek(c *call) error {
	fh, offset, whence := c.in.U64(), c.in.U64(), c.in.U32()
	c.in.Skip(4)
	if err := c.in.End(); err != nil {
		return err
	}
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return unix.EINVAL
	}
	h, err := c.s.handles.get(fh, c.h.Node)
	if err != nil {
		return err
	}
	defer c.s.handles.done(h)
	at, err := unix.Seek(h.fd, int64(offset), int(whence))
	if err != nil {
		return err
	}
	c.out = binary.LittleEndian.AppendUint64(c.out, uint64(at))
	return nil
}

// maxCopy bounds what one request copies; the guest asks again for the rest.
const maxCopy = 256 << 20

// copyFileRange is COPY_FILE_RANGE and COPY_FILE_RANGE_64, which differ in the
// reply.
func copyFileRange(c *call) error {
	fhIn, offIn, nodeOut, fhOut := c.in.U64(), c.in.U64(), c.in.U64(), c.in.U64()
	offOut, length, flags := c.in.U64(), c.in.U64(), c.in.U64()
	if err := c.in.End(); err != nil {
		return err
	}
	if flags != 0 {
		return unix.EINVAL
	}
	from, err := c.s.handles.get(fhIn, c.h.Node)
	if err != nil {
		return err
	}
	defer c.s.handles.done(from)
	to, err := c.s.changeable(fhOut, nodeOut)
	if err != nil {
		return err
	}
	defer c.s.handles.done(to)
	c.s.dropPriv(to)
	rd, wr := int64(offIn), int64(offOut)
	var n int
	err = restart(func() (err error) {
		n, err = unix.CopyFileRange(from.fd, &rd, to.fd, &wr, int(min(length, maxCopy)), 0)
		return err
	})
	if err != nil {
		return err
	}
	if c.h.Op == fusewire.CopyFileRange64 {
		c.out = binary.LittleEndian.AppendUint64(c.out, uint64(n))
		return nil
	}
	c.out = binary.LittleEndian.AppendUint32(c.out, uint32(n))
	c.out = binary.LittleEndian.AppendUint32(c.out, 0)
	return nil
}
