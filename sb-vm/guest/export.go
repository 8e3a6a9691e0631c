//go:build linux

package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"sb/lib/session"

	"golang.org/x/sys/unix"
)

// exportRoot writes the root file system as a tar archive: what lies on other file
// systems (the kernel's, shares) is left out, and what is for the moment.
func exportRoot(w io.Writer) error {
	var root unix.Stat_t
	if err := unix.Lstat("/", &root); err != nil {
		return fmt.Errorf("export /: %w", err)
	}
	whole := bufio.NewWriterSize(w, session.MaxFrame) // each write is a frame, and most entries are small
	e := exporter{out: tar.NewWriter(whole), device: root.Dev, seen: map[inode]string{}}
	err := filepath.WalkDir("/", e.entry)
	if err == nil {
		err = errors.Join(e.out.Close(), whole.Flush())
	}
	if err != nil {
		return fmt.Errorf("export /: %w", err)
	}
	return nil
}

// momentary are directories whose content is nobody's to keep.
var momentary = map[string]bool{"/tmp": true, "/var/tmp": true, "/run": true}

type inode struct{ device, number uint64 }

type exporter struct {
	out    *tar.Writer
	device uint64
	seen   map[inode]string // the first name of what has several
}

func (e *exporter) entry(path string, d fs.DirEntry, err error) error {
	if err != nil || path == "/" {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	h := &tar.Header{
		Name: path[1:], Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	var skip error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		if st.Dev != e.device || momentary[path] {
			skip = fs.SkipDir // itself is there, as a place to mount on
		}
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	default:
		return nil // a socket is its server's
	}
	if !d.IsDir() && st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first := e.seen[id]; first != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		} else {
			e.seen[id] = h.Name
		}
	}
	if err := e.add(path, h); err != nil {
		return err
	}
	return skip
}

// add writes an entry, and a file's content.
func (e *exporter) add(path string, h *tar.Header) error {
	h.Format = tar.FormatGNU
	if utf8.ValidString(h.Name + h.Linkname) {
		h.Format, h.PAXRecords = tar.FormatPAX, attributes(path)
	}
	if err := e.out.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(e.out, f, h.Size); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// attributes are the extended ones that an image keeps, as tar has them.
func attributes(path string) map[string]string {
	list := make([]byte, 4096)
	n, err := unix.Llistxattr(path, list)
	if err != nil || n == 0 {
		return nil
	}
	records := map[string]string{}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if name != "security.capability" && !strings.HasPrefix(name, "user.") {
			continue
		}
		if n, err := unix.Lgetxattr(path, name, value); err == nil {
			records["SCHILY.xattr."+name] = string(value[:n])
		}
	}
	return records
}
