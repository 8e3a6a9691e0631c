package template

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

// current reports whether the files that went into the template are still the same.
func (l Listed) current() bool {
	for _, in := range l.Inputs {
		if in.File == "" {
			continue
		}
		if is, err := Identify(in.File); err != nil || is != in.Value {
			return false
		}
	}
	return len(l.Inputs) > 0
}

// Collect removes the templates that no machine can start from any more, since a
// file that went into them is gone or another, and what was left half made. It
// calls removed for each, and returns how many bytes that made free.
func (s *Store) Collect(removed func(Listed)) (freed int64, err error) {
	freed = s.clearDead()
	refused, _ := filepath.Glob(filepath.Join(s.dir, ".*.refused"))
	for _, f := range refused {
		os.Remove(f)
	}
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

// Differs names what of inputs is another in the template that is most like them,
// "" if there is none like them at all.
func (s *Store) Differs(inputs []Input) string {
	all, _ := s.List()
	best, names := len(inputs), ""
	for _, t := range all {
		var other []string
		for _, in := range inputs {
			if t.Input(in.Name) != in.Value && in.Name != "command" {
				other = append(other, in.Name)
			}
		}
		if len(other) < best && len(other) <= 2 {
			best, names = len(other), strings.Join(other, " and ")
		}
	}
	return names
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
