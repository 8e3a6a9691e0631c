//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sb/lib/session"

	"golang.org/x/sys/unix"
)

// stdin is what the host sends as one.
type stdin struct {
	sv   *session.Served
	rest []byte
	end  bool
}

func (r *stdin) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.end {
			return 0, io.EOF
		}
		in, err := r.sv.Input()
		if err != nil {
			return 0, err
		}
		r.rest, r.end = in.Stdin, in.EOF
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// unpack writes what an archive has: the user's own below his home, root's
// elsewhere. What lies in a share is not written: it is the host's.
func unpack(c session.Command, in io.Reader, said io.Writer) error {
	u, err := findUser(c.User)
	if err != nil {
		return err
	}
	p := unpacker{home: environment(c, u)["HOME"], user: u, said: said}
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, in) // the host's last words
			return err
		}
		if err != nil {
			return err
		}
		if err := p.entry(h, archive); err != nil {
			return fmt.Errorf("write %s: %w", h.Name, err)
		}
	}
}

type unpacker struct {
	home string
	user user
	said io.Writer
}

func (p *unpacker) entry(h *tar.Header, in io.Reader) error {
	path := h.Name
	own := !filepath.IsAbs(path)
	if own {
		path = filepath.Join(p.home, path)
	} else {
		path = filepath.Clean(path)
		own = path == p.home || within(path, p.home)
	}
	if shared(path) {
		fmt.Fprintf(p.said, "%s lies in a share, and is not written\n", path)
		return nil
	}
	if own && h.Typeflag == tar.TypeReg {
		if err := p.clear(path); err != nil {
			return err
		}
	}
	if err := p.makeDir(filepath.Dir(path), own); err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode & 0o777)
	switch h.Typeflag {
	case tar.TypeDir:
		if err := p.makeDir(path, own); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	case tar.TypeSymlink:
		if err := os.Symlink(h.Linkname, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return p.give(path, own)
	case tar.TypeReg:
		return p.file(path, mode, own, h, in)
	}
	return fmt.Errorf("it is of the kind %q", h.Typeflag)
}

// file writes a file whole or not at all, over what is there.
func (p *unpacker) file(path string, mode fs.FileMode, own bool, h *tar.Header, in io.Reader) error {
	switch h.PAXRecords[session.UnpackHow] {
	case session.UnpackKeep:
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
	case session.UnpackMerge:
		merged, err := p.merge(path, in, own)
		if err != nil || merged == nil {
			return err
		}
		in = merged
		if st, err := os.Stat(path); err == nil {
			mode = st.Mode().Perm()
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".sb-new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, in)
	if err = errors.Join(err, f.Chmod(mode), f.Close(), p.give(f.Name(), own)); err != nil {
		return err
	}
	if !h.ModTime.IsZero() && h.ModTime.Unix() > 0 {
		if err := os.Chtimes(f.Name(), time.Time{}, h.ModTime); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), path)
}

// clear has a file of the user's find its place: what an earlier sandbox left there
// must not keep every later one from starting.
func (p *unpacker) clear(path string) error {
	rest, err := filepath.Rel(p.home, path)
	if err != nil || !filepath.IsLocal(rest) || rest == "." {
		return err
	}
	at := p.home
	for part := range strings.SplitSeq(filepath.Dir(rest), "/") {
		at = filepath.Join(at, part)
		if _, err := os.Lstat(at); err != nil {
			return nil // nor is there anything below
		}
		if st, err := os.Stat(at); err != nil || !st.IsDir() {
			return p.aside(at, "it is no directory")
		}
	}
	if st, err := os.Lstat(path); err == nil && st.IsDir() {
		return p.aside(path, "it is a directory")
	}
	return nil
}

// aside takes what is in the way to another name, beside an earlier one.
func (p *unpacker) aside(path, why string) error {
	to := path + ".aside"
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = fmt.Sprintf("%s.aside%d", path, n)
	}
	if err := os.Rename(path, to); err != nil {
		return err
	}
	fmt.Fprintf(p.said, "%s is %s now: %s\n", path, filepath.Base(to), why)
	return nil
}

// merge is mergeFile; of the user's own, a file that cannot be read goes aside.
func (p *unpacker) merge(path string, in io.Reader, own bool) (io.Reader, error) {
	change, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	merged, err := mergeFile(path, bytes.NewReader(change))
	if err == nil || !own {
		return merged, err
	}
	if err := p.aside(path, err.Error()); err != nil {
		return nil, err
	}
	return mergeFile(path, bytes.NewReader(change))
}

// makeDir makes a directory, and those above it.
func (p *unpacker) makeDir(dir string, own bool) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	own = own && (dir == p.home || within(dir, p.home))
	if err := p.makeDir(filepath.Dir(dir), own); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if own {
		mode = 0o700
	}
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return p.give(dir, own)
}

func (p *unpacker) give(path string, own bool) error {
	if !own {
		return nil
	}
	return os.Lchown(path, int(p.user.uid), int(p.user.gid))
}

// within says whether a path lies below a directory, both clean.
func within(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest) && rest != "."
}

// fuseMagic is FUSE_SUPER_MAGIC of linux/magic.h: what a share is.
const fuseMagic = 0x65735546

// shared says whether a path, or what of it is there, lies in a share.
func shared(path string) bool {
	for ; ; path = filepath.Dir(path) {
		var st unix.Statfs_t
		if unix.Statfs(path, &st) == nil {
			return st.Type == fuseMagic
		}
		if path == "/" {
			return false
		}
	}
}
