// Package erofs writes read-only file system images in the format of Linux's
// erofs (Documentation/filesystems/erofs.rst, fs/erofs/erofs_fs.h), which every
// kernel since 5.4 mounts.
//
// The content of files goes straight to the image as it comes; the tree is kept
// in memory and written behind it. So a tree can be changed until the end, by
// the layers of a container image for instance, while no file's content is ever
// held or copied. Hard links are links, and everything else that a tar archive
// knows of a file is kept. The same calls make the same bytes.
package erofs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// The limits of the format, and of Linux for what the format leaves open.
const (
	MaxName   = 255  // bytes in a name
	MaxTarget = 4095 // bytes in a symbolic link's target (PATH_MAX less its NUL)
)

// Type bits of a mode (inode(7)).
const (
	TypeMask    = 0o170000
	TypeFIFO    = 0o010000
	TypeChar    = 0o020000
	TypeDir     = 0o040000
	TypeBlock   = 0o060000
	TypeFile    = 0o100000
	TypeSymlink = 0o120000
	TypeSocket  = 0o140000
)

// Inode is one file. Several directory entries may lead to one inode, unless
// it is a directory.
type Inode struct {
	Mode      uint32 // type and permission bits
	UID, GID  uint32
	Mtime     int64 // seconds since the epoch
	MtimeNsec uint32
	Device    uint32           // of a device node: Device(major, minor)
	Target    string           // of a symbolic link
	Xattrs    []Xattr          // set with SetXattrs
	Children  map[string]Entry // of a directory; nil is an empty one

	size    int64 // of a file's content
	block   uint32
	inline  bool  // the last, partial block lies behind the inode
	spooled int64 // and was put aside at this offset

	names []string // of a directory, sorted, with . and .. (while the image is finished)
	nid   uint64   // where its inode lies, in units of 32 bytes
	links uint32
}

// Entry is a directory entry. Tag is the caller's.
type Entry struct {
	Inode *Inode
	Tag   int
}

// Xattr is one extended attribute, by its full name.
type Xattr struct{ Name, Value string }

// Type returns the type bits of the mode.
func (i *Inode) Type() uint32 { return i.Mode & TypeMask }

// IsDir reports whether i is a directory.
func (i *Inode) IsDir() bool { return i.Type() == TypeDir }

// Size is the length of a file's content in bytes.
func (i *Inode) Size() int64 { return i.size }

// Device encodes a device number as Linux does (new_encode_dev in
// include/linux/kdev_t.h): twelve bits for the major, twenty for the minor.
func Device(major, minor int64) (uint32, error) {
	if major < 0 || major > 0xfff || minor < 0 || minor > 0xfffff {
		return 0, fmt.Errorf("no device has the number %d:%d", major, minor)
	}
	return uint32(minor&0xff | major<<8 | (minor&^0xff)<<12), nil
}

// ErrXattr is the answer to an attribute that the format has no place for.
var ErrXattr = errors.New("not an attribute that erofs can hold")

// The name spaces (EROFS_XATTR_INDEX_*). The two of POSIX access control lists are
// whole names.
var xattrSpaces = []struct {
	prefix string
	index  byte
	whole  bool
}{
	{"user.", 1, false},
	{"system.posix_acl_access", 2, true},
	{"system.posix_acl_default", 3, true},
	{"trusted.", 4, false},
	{"security.", 6, false},
}

// split returns the number of an attribute's name space and the rest of its name.
func (x Xattr) split() (index byte, rest string, err error) {
	for _, s := range xattrSpaces {
		if len(x.Name) >= len(s.prefix) && x.Name[:len(s.prefix)] == s.prefix && s.whole == (len(x.Name) == len(s.prefix)) {
			rest = x.Name[len(s.prefix):]
			if len(rest) > MaxName || len(x.Value) > 0xffff {
				return 0, "", fmt.Errorf("%w: %q is too long", ErrXattr, x.Name)
			}
			return s.index, rest, nil
		}
	}
	return 0, "", fmt.Errorf("%w: %q is of another kind", ErrXattr, x.Name)
}

// maxXattrs is what the sixteen bits of i_xattr_icount can count.
const maxXattrs = 0xfffe * 4

// SetXattrs gives the inode its attributes, in whichever order they come. One
// that cannot be kept is an error, and then none are set.
func (i *Inode) SetXattrs(list []Xattr) error {
	size := 0
	for _, x := range list {
		_, rest, err := x.split()
		if err != nil {
			return err
		}
		size += xattrEntry(len(rest), len(x.Value))
	}
	if size > maxXattrs {
		return fmt.Errorf("%w: %d bytes are too many", ErrXattr, size)
	}
	slices.SortFunc(list, func(a, b Xattr) int { return cmp.Compare(a.Name, b.Name) })
	i.Xattrs = list
	return nil
}

func xattrEntry(name, value int) int { return (4 + name + value + 3) &^ 3 }

// xattrSize is what the attributes take behind the inode.
func (i *Inode) xattrSize() int {
	if len(i.Xattrs) == 0 {
		return 0
	}
	n := 12 // struct erofs_xattr_ibody_header
	for _, x := range i.Xattrs {
		_, rest, _ := x.split()
		n += xattrEntry(len(rest), len(x.Value))
	}
	return n
}

func (i *Inode) appendXattrs(b []byte) []byte {
	if len(i.Xattrs) == 0 {
		return b
	}
	b = append(b, make([]byte, 12)...) // no name filter, no shared attributes
	for _, x := range i.Xattrs {
		index, rest, _ := x.split()
		b = append(b, byte(len(rest)), index, byte(len(x.Value)), byte(len(x.Value)>>8))
		b = append(b, rest...)
		b = append(b, x.Value...)
		for n := 4 + len(rest) + len(x.Value); n%4 != 0; n++ {
			b = append(b, 0)
		}
	}
	return b
}
