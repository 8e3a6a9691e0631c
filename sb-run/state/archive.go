// Package state keeps what an agent leaves in its home from one sandbox to the next:
// one archive for each agent, whose files are only ever unpacked in a guest.
//
// What comes out of a guest is its word. It is read strictly and written anew:
// regular files, directories and links within it, below the paths that the profile
// names, without owners, special bits or attributes, and no credential file.
package state

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of what is kept for an agent.
const (
	MaxBytes   = 512 << 20 // of all files together
	MaxEntries = 100_000
	maxName    = 1024
	maxPart    = 255 // NAME_MAX
)

// ErrBounds is the error about more than is kept.
var ErrBounds = errors.New("it is more than is kept of an agent")

// entry is a file, directory or link.
type entry struct {
	kind byte // tar's
	mode int64
	size int64
	sum  [sha256.Size]byte
	link string
	time time.Time
}

// same says whether two are, whenever they were written.
func (e entry) same(other entry) bool {
	e.time, other.time = time.Time{}, time.Time{}
	return e == other
}

// index is what an archive has, by names relative to the home.
type index map[string]entry

func (all index) bytes() (n int64) {
	for _, e := range all {
		n += e.size
	}
	return n
}

// Filter is what of an archive is kept.
type Filter struct {
	Roots []string               // names relative to the home
	Drop  func(name string) bool // of what is below them, what is left out
}

// Copy reads an archive as a guest wrote it and writes what of it is kept, without
// the end, so that more can follow.
func (f Filter) Copy(out *tar.Writer, in io.Reader) (index, error) {
	all, above, left := index{}, map[string]bool{}, int64(MaxBytes)
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(all) >= MaxEntries {
			return nil, fmt.Errorf("%w: %d files", ErrBounds, MaxEntries)
		}
		if left -= h.Size; h.Size < 0 || left < 0 {
			return nil, fmt.Errorf("%w: %d MiB", ErrBounds, MaxBytes>>20)
		}
		name := h.Name
		if h.Typeflag == tar.TypeDir {
			name = strings.TrimSuffix(name, "/")
		}
		if err := f.check(h, name, all, above); err != nil {
			return nil, fmt.Errorf("%.200q: %w", h.Name, err)
		}
		if f.Drop(name) || h.Typeflag == tar.TypeSymlink && !f.inside(path.Join(path.Dir(name), h.Linkname), h.Linkname) {
			continue
		}
		if all[name], err = add(out, name, h, archive); err != nil {
			return nil, err
		}
		for up := path.Dir(name); up != "." && !above[up]; up = path.Dir(up) {
			above[up] = true
		}
	}
}

// check refuses what no guest program of ours sends, and what the next guest could
// not unpack. above are the directories in which there is something.
func (f Filter) check(h *tar.Header, name string, all index, above map[string]bool) error {
	if !isName(name) || !isName(h.Linkname) {
		return errNoName
	}
	if !f.inside(name, name) || path.Clean(name) != name {
		return errors.New("it lies outside of what is kept")
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
	default:
		return fmt.Errorf("it is of the kind %q, and no file, directory or link", h.Typeflag)
	}
	if h.Mode&^0o777 != 0 {
		return fmt.Errorf("its mode is %o", h.Mode)
	}
	if _, twice := all[name]; twice {
		return errors.New("it is there twice")
	}
	if all.below(name) || above[name] && h.Typeflag != tar.TypeDir {
		return errBelow
	}
	return nil
}

var (
	errNoName = errors.New("it is no name of a file that is kept")
	errBelow  = errors.New("it lies below what is no directory")
)

// isName tells what can be the name of a file, or where a link leads.
func isName(name string) bool {
	long := slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return len(part) > maxPart })
	return len(name) <= maxName && !long && utf8.ValidString(name) && !strings.ContainsRune(name, 0)
}

// below tells whether a name lies below what is no directory.
func (all index) below(name string) bool {
	for up := path.Dir(name); up != "." && up != "/"; up = path.Dir(up) {
		if e, there := all[up]; there && e.kind != tar.TypeDir {
			return true
		}
	}
	return false
}

// inside says whether a name, written as given, lies in what is kept.
func (f Filter) inside(name, given string) bool {
	return !path.IsAbs(given) && filepath.IsLocal(name) && slices.ContainsFunc(f.Roots, func(root string) bool {
		return name == root || strings.HasPrefix(name, root+"/")
	})
}

// add writes an entry, of which the name, the kind, the permissions, the content and
// the time are kept; a time to come would win over every other.
func add(out *tar.Writer, name string, h *tar.Header, content io.Reader) (entry, error) {
	e := entry{kind: h.Typeflag, mode: h.Mode, time: h.ModTime}
	if now := time.Now(); e.time.After(now) || e.time.Unix() < 0 {
		e.time = now
	}
	clean := &tar.Header{Typeflag: e.kind, Name: name, Mode: e.mode, ModTime: e.time, Format: tar.FormatPAX}
	switch e.kind {
	case tar.TypeDir:
		clean.Name += "/"
	case tar.TypeSymlink:
		e.link, clean.Linkname = h.Linkname, h.Linkname
	case tar.TypeReg:
		e.size, clean.Size = h.Size, h.Size
	}
	if err := out.WriteHeader(clean); err != nil {
		return e, err
	}
	sum := sha256.New()
	if e.kind == tar.TypeReg {
		if _, err := io.Copy(io.MultiWriter(out, sum), content); err != nil {
			return e, err
		}
	}
	sum.Sum(e.sum[:0])
	return e, nil
}
