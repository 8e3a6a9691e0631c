// Package undo keeps what a directory was like, so that it, or a path of it, can be
// put back: before a guest is given a working directory, it is recorded here.
//
// The store is a directory of the user's that no share reaches (lib/keep):
//
//	undo/records/NAME       a record (encode.go has the form); it is there whole or not at all
//	undo/objects/ab/cdef…   the bytes of files, by their SHA-256
//	undo/tmp/               what is being written; what nobody holds is cleared away
//	undo/lock               held shared by who reads or adds, alone by who removes
//
// A file of the store is never a hard link of one in a tree: an editor that
// writes into the tree's would write into ours.
//
// A tree may be hostile. Every path in it is opened one component after the other,
// each relative to the directory before it and through no symbolic link
// (place.go); that is openat2's RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS, on every
// system, and for paths of any depth. Nothing in a tree is run or believed: not
// git, and no configuration.
package undo

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is what an entry is.
type Kind byte

// What is recorded.
const (
	File Kind = 'f'
	Dir  Kind = 'd'
	Link Kind = 'l' // a symbolic link
)

func (k Kind) String() string {
	return map[Kind]string{File: "file", Dir: "directory", Link: "symbolic link"}[k]
}

// Time is a time of a file: seconds and nanoseconds, as the kernel has it.
type Time struct{ Sec, Nsec int64 }

func timeOf(t unix.Timespec) Time { return Time{int64(t.Sec), int64(t.Nsec)} }

func (t Time) after(u time.Time) bool { return time.Unix(t.Sec, t.Nsec).After(u) }

// Digest is the SHA-256 of a file's bytes.
type Digest [32]byte

// Identity is by which a file is known to be the same and unchanged.
type Identity struct {
	Dev, Ino uint64
	Ctime    Time
}

// Attribute is an extended attribute of the namespace user.
type Attribute struct{ Name, Value string }

// Entry is a file, a directory or a symbolic link.
type Entry struct {
	Path       string // from the tree, of any bytes; "" is the tree itself
	Kind       Kind
	Mode       uint32 // permissions, setuid, setgid and sticky
	UID, GID   uint32
	Mtime      Time
	Size       int64  // of a file
	Digest     Digest // of a file
	Target     string // of a symbolic link
	Identity   Identity
	Attributes []Attribute // by name; none of a symbolic link
}

// Skipped is what was there and is not in the record.
type Skipped struct {
	Path    string
	Why     string // "a fifo"
	Ignored bool   // by rule: a folder of such a name
}

// Rules say what is not recorded.
type Rules struct {
	Ignore  []string `json:"ignore"`  // names of folders
	Largest int64    `json:"largest"` // bytes of a file
}

// Header is what is known of a record without reading its entries.
type Header struct {
	Version int       `json:"version"`
	Name    string    `json:"record"`
	Tree    string    `json:"tree"` // its real path
	Of      string    `json:"of"`   // the sandbox, or what it was made before
	Started time.Time `json:"started"`
	Rules   Rules     `json:"rules"`
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"` // of all files
	Missing int       `json:"not_recorded"`
	Ignored int       `json:"ignored"` // folders
}

// Record is a tree as it was.
type Record struct {
	Header
	Entries []Entry   // by path
	Skipped []Skipped // by path

	Took  time.Duration // to make
	Read  int           // files that were read, where the record before did not do
	Added int64         // bytes that the store did not have
}

// sort brings a record into its order, in which a directory comes before what is
// in it, and counts.
func (r *Record) sort() {
	slices.SortFunc(r.Entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortStableFunc(r.Skipped, func(a, b Skipped) int { return cmp.Compare(a.Path, b.Path) })
	r.Skipped = slices.CompactFunc(r.Skipped, func(a, b Skipped) bool { return a.Path == b.Path })
	r.Files, r.Bytes, r.Missing, r.Ignored = 0, 0, 0, 0
	for _, e := range r.Entries {
		if e.Kind == File {
			r.Files++
			r.Bytes += e.Size
		}
	}
	for _, s := range r.Skipped {
		if s.Ignored {
			r.Ignored++
		} else {
			r.Missing++
		}
	}
}

// at is the entry of a path, nil if there is none.
func (r *Record) at(path string) *Entry {
	i, ok := slices.BinarySearchFunc(r.Entries, path, func(e Entry, path string) int { return cmp.Compare(e.Path, path) })
	if !ok {
		return nil
	}
	return &r.Entries[i]
}

// Has reports whether the record has something at a path.
func (r *Record) Has(path string) bool { return r.at(path) != nil }

// byPath finds an entry.
func (r *Record) byPath() map[string]*Entry {
	all := make(map[string]*Entry, len(r.Entries))
	for i := range r.Entries {
		all[r.Entries[i].Path] = &r.Entries[i]
	}
	return all
}

// inode is a file, whatever its names.
type inode struct{ dev, ino uint64 }

// leaders are the first names of the files that have several here, by the others.
func (r *Record) leaders() map[string]string {
	first, leaders := map[inode]string{}, map[string]string{}
	for _, e := range r.Entries {
		if e.Kind != File {
			continue
		}
		id := inode{e.Identity.Dev, e.Identity.Ino}
		if name, ok := first[id]; ok {
			leaders[e.Path] = name
		} else {
			first[id] = e.Path
		}
	}
	return leaders
}
