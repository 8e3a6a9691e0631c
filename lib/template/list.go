package template

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// Listed is what is known of a template without opening it.
type Listed struct {
	Key    string    `json:"key"`
	Inputs []Input   `json:"inputs"` // none if its record cannot be read
	Bytes  int64     `json:"size"`   // on the disk
	Used   time.Time `json:"used"`   // last
}

// Input is the value of that input, "" if there is none.
func (l Listed) Input(name string) string {
	for _, in := range l.Inputs {
		if in.Name == name {
			return in.Value
		}
	}
	return ""
}

// List returns the templates, the last used one first.
func (s *Store) List() (all []Listed, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		dir := filepath.Join(s.dir, e.Name())
		l := Listed{Key: e.Name(), Bytes: diskUse(dir)}
		var m made
		if readRecord(filepath.Join(dir, "made"), &m) == nil {
			l.Inputs = m.Inputs
		}
		if st, err := os.Lstat(filepath.Join(dir, "checked")); err == nil {
			l.Used = st.ModTime()
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b Listed) int { return b.Used.Compare(a.Used) })
	return all, nil
}

// current reports whether this release can start from the template, and the files
// that went into it are still the same.
func (l Listed) current() bool {
	for _, in := range l.Inputs {
		if is, err := Identify(in.File); in.File != "" && (err != nil || is != in.Value) {
			return false
		}
	}
	return l.Input(Release) == say.Version
}

// Collect removes the templates that no machine can start from any more, since a
// file that went into them is gone or another, and what was left half made. It
// calls removed for each, and returns how many bytes that made free.
func (s *Store) Collect(removed func(Listed)) (freed int64, err error) {
	freed = s.clearDead()
	s.clearMarks()
	all, err := s.List()
	for _, t := range all {
		if t.current() {
			continue
		}
		if e := s.Remove(t.Key); e != nil {
			err = errors.Join(err, e)
			continue
		}
		freed += t.Bytes
		removed(t)
	}
	return freed, err
}

// clearMarks removes the notes of what failed, and the locks that nobody holds.
func (s *Store) clearMarks() {
	for _, f := range s.named(".", ".refused") {
		os.Remove(f)
	}
	for _, path := range s.named(".", ".lock") {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(path) // who waits for it sees that it is gone
		}
		f.Close()
	}
}

// Outdated names what has become another since the same machine was saved: files
// that went into it, or the release. It is "" if there is none of the same kind.
func (s *Store) Outdated(inputs []Input) string {
	all, _ := s.List()
	for _, t := range all {
		if names, same := t.outdated(inputs); same {
			return strings.Join(names, " and ")
		}
	}
	return ""
}

// outdated names those of inputs that have become others, if they are the only
// ones in which the template differs.
func (l Listed) outdated(inputs []Input) (names []string, same bool) {
	for _, in := range inputs {
		switch {
		case in.Name == Command || l.Input(in.Name) == in.Value:
		case in.File != "" || in.Name == Release:
			names = append(names, in.Name)
		default:
			return nil, false
		}
	}
	return names, true
}

// diskUse is what a directory takes on the disk, in bytes.
func diskUse(dir string) (sum int64) {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum
}
