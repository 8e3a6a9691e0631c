//go:build linux

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/session"
)

// pack writes files and trees of the user's home as an archive: what is no file,
// directory or link within it, and what lies in a share, is left out.
func pack(c session.Command, out io.Writer) error {
	u, err := findUser(c.User)
	if err != nil {
		return err
	}
	p := packer{home: environment(c, u)["HOME"], leave: c.Pack.Leave, out: tar.NewWriter(out)}
	for _, name := range c.Pack.Paths {
		err := filepath.WalkDir(filepath.Join(p.home, name), p.entry)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	return p.out.Close()
}

type packer struct {
	home  string
	leave []string
	out   *tar.Writer
}

func (p *packer) entry(at string, d fs.DirEntry, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	name, err := filepath.Rel(p.home, at)
	if err != nil {
		return err
	}
	if p.stays(name) || d.IsDir() && shared(at) {
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	st, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a program that goes on took it away
	}
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	switch {
	case d.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case d.Type() == fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(at); err != nil || filepath.IsAbs(h.Linkname) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), h.Linkname)) {
			return nil
		}
	case d.Type().IsRegular():
		return p.file(at, h)
	default:
		return nil
	}
	return p.out.WriteHeader(h)
}

func (p *packer) stays(name string) bool {
	return slices.ContainsFunc(p.leave, func(leave string) bool {
		matched, _ := path.Match(leave, strings.ToLower(path.Base(name)))
		return matched || leave == name
	})
}

// file adds a file. One that a program goes on writing has the length that it has
// now: what is missing then is zeros.
func (p *packer) file(at string, h *tar.Header) error {
	f, err := os.Open(at)
	if err != nil {
		return nil // taken away
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := p.out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(p.out, io.MultiReader(f, zeros{}), h.Size)
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
