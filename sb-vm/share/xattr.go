//go:build linux

package share

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"
)

// userXattr begins the names of the attributes that the guest can use. The
// others decide what the host's kernel lets whom do (security., trusted., ACLs
// in system.).
const userXattr = "user."

// maxXattr bounds a value and a list (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const maxXattr = 64 << 10

// xattrs runs act on the file of a request about attribute name.
func (c *call) xattrs(name string, changes bool, act func(fd int) error) error {
	s := c.s
	if !strings.HasPrefix(name, userXattr) {
		return unix.EOPNOTSUPP
	}
	if len(name) > maxName {
		return unix.ERANGE
	}
	n, err := s.nodes.get(c.h.Node)
	if err != nil {
		return err
	}
	if n.typ != unix.S_IFREG && n.typ != unix.S_IFDIR {
		return unix.EOPNOTSUPP
	}
	p, err := s.place(n)
	if err != nil {
		return err
	}
	defer s.places.done(p)
	if changes {
		var st unix.Statx_t
		if err := statFD(p.fd, &st); err != nil {
			return err
		}
		if err := s.mayChange(n, &st); err != nil {
			return err
		}
		s.changing(n)
	}
	var fd int
	err = s.asOwner(c, func() (err error) {
		fd, err = s.reopen(p.fd, unix.O_RDONLY)
		return err
	}, p)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return restart(func() error { return act(fd) })
}

func getxattr(c *call) error {
	size, _ := c.in.U32(), c.in.U32()
	name := c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	value := make([]byte, min(size, maxXattr))
	return c.xattrs(name, false, func(fd int) error {
		n, err := unix.Fgetxattr(fd, name, value)
		if err == nil {
			c.sized(value, n)
		}
		return err
	})
}

// sized answers with the first n bytes of b or, if b is empty, with n alone.
func (c *call) sized(b []byte, n int) {
	if len(b) > 0 {
		c.out = append(c.out, b[:n]...)
		return
	}
	c.out = binary.LittleEndian.AppendUint32(c.out, uint32(n))
	c.out = binary.LittleEndian.AppendUint32(c.out, 0)
}

func listxattr(c *call) error {
	size, _ := c.in.U32(), c.in.U32()
	if err := c.in.End(); err != nil {
		return err
	}
	return c.xattrs(userXattr, false, func(fd int) error {
		all := make([]byte, maxXattr)
		n, err := unix.Flistxattr(fd, all)
		if err != nil {
			return err
		}
		var list []byte
		for name := range bytes.SplitAfterSeq(all[:n], []byte{0}) {
			if bytes.HasPrefix(name, []byte(userXattr)) {
				list = append(list, name...)
			}
		}
		if size == 0 {
			c.sized(nil, len(list))
			return nil
		}
		if len(list) > int(size) {
			return unix.ERANGE
		}
		c.out = append(c.out, list...)
		return nil
	})
}

func setxattr(c *call) error {
	size, flags := c.in.U32(), c.in.U32()
	name := c.in.Name()
	value := c.in.Data(size)
	if err := c.in.End(); err != nil {
		return err
	}
	if flags&^(unix.XATTR_CREATE|unix.XATTR_REPLACE) != 0 {
		return unix.EINVAL
	}
	return c.xattrs(name, true, func(fd int) error { return unix.Fsetxattr(fd, name, value, int(flags)) })
}

func removexattr(c *call) error {
	name := c.in.Name()
	if err := c.in.End(); err != nil {
		return err
	}
	return c.xattrs(name, true, func(fd int) error { return unix.Fremovexattr(fd, name) })
}
