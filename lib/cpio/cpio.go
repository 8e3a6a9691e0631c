// Package cpio writes archives in the newc format, the one that the Linux kernel
// unpacks into its first root file system (Documentation/driver-api/early-userspace/buffer-format.rst).
//
// Archives can be put one behind the other: the kernel unpacks them all, and a
// file of a later one replaces that of an earlier one. So a fixed archive of
// kernel modules and a small one made for one machine need no copying.
package cpio

import (
	"fmt"
	"io"
	"strings"
)

// The type bits of a mode (inode(7)).
const (
	typeDir     = 0o040000
	typeFile    = 0o100000
	typeSymlink = 0o120000
	typeChar    = 0o020000
	typeBlock   = 0o060000
)

// Limits of the format: eight hexadecimal digits for a size, and the kernel
// takes no name longer than PATH_MAX (4096 with its NUL).
const (
	maxSize = 1<<32 - 1
	maxName = 4095
)

const trailer = "TRAILER!!!"

// Writer writes one archive. Everything belongs to root and was last modified
// at the epoch, so the same calls make the same bytes. The first error stays:
// every later call, Close included, returns it.
type Writer struct {
	w     io.Writer
	inode uint32
	pos   int64 // bytes written, for the padding
	err   error
}

// NewWriter returns a Writer on w, which it neither buffers nor closes.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Dir adds a directory. The kernel makes no parents, so they come first.
// perm holds the low twelve bits of the mode, as in every method here.
func (w *Writer) Dir(name string, perm uint32) error {
	return w.entry(name, typeDir|perm&0o7777, 0, nil, 0)
}

// File adds a regular file of exactly size bytes, read from r.
func (w *Writer) File(name string, perm uint32, size int64, r io.Reader) error {
	return w.entry(name, typeFile|perm&0o7777, size, r, 0)
}

// Symlink adds a symbolic link called name that points to target.
func (w *Writer) Symlink(name, target string) error {
	return w.entry(name, typeSymlink|0o777, int64(len(target)), strings.NewReader(target), 0)
}

// Char adds a character device.
func (w *Writer) Char(name string, perm, major, minor uint32) error {
	return w.entry(name, typeChar|perm&0o7777, 0, nil, uint64(major)<<32|uint64(minor))
}

// Block adds a block device.
func (w *Writer) Block(name string, perm, major, minor uint32) error {
	return w.entry(name, typeBlock|perm&0o7777, 0, nil, uint64(major)<<32|uint64(minor))
}

// Close writes the trailer and pads the archive to 512 bytes, as cpio does.
// It does not close the writer below.
func (w *Writer) Close() error {
	w.inode = 0
	w.header(trailer, 0, 0, 0)
	w.pad(512)
	return w.err
}

func (w *Writer) entry(name string, mode uint32, size int64, r io.Reader, device uint64) error {
	if w.err != nil {
		return w.err
	}
	name = strings.TrimPrefix(name, "/")
	switch {
	case name == "" || name == trailer || len(name) > maxName || strings.ContainsRune(name, 0):
		w.err = fmt.Errorf("add %q to the archive: not a name that the format has", name)
	case size < 0 || size > maxSize:
		w.err = fmt.Errorf("add %s to the archive: %d bytes are more than the format has", name, size)
	}
	w.inode++
	w.header(name, mode, size, device)
	if w.err == nil && size > 0 {
		n, err := io.CopyN(w.w, r, size)
		w.pos += n
		if err != nil {
			w.err = fmt.Errorf("add %s to the archive: %w", name, err)
		}
	}
	w.pad(4)
	return w.err
}

// header writes the 110 bytes and the name. Each entry has its own inode
// number and one link: hard links are not needed in a first root file system.
func (w *Writer) header(name string, mode uint32, size int64, device uint64) {
	const uid, gid, links, mtime, check = 0, 0, 1, 0, 0
	w.printf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		w.inode, mode, uid, gid, links, mtime, size,
		0, 0, device>>32, device&0xffffffff, len(name)+1, check, name)
	w.pad(4)
}

func (w *Writer) pad(to int64) {
	if n := -w.pos & (to - 1); n > 0 {
		w.printf("%s", make([]byte, n))
	}
}

func (w *Writer) printf(format string, args ...any) {
	if w.err != nil {
		return
	}
	n, err := fmt.Fprintf(w.w, format, args...)
	w.pos += int64(n)
	w.err = err
}
