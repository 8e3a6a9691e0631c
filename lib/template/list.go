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

// Collect removes what no machine can start from any more, as current tells by
// a template's inputs, and what was left half made. It returns how many bytes
// that made free.
func (s *Store) Collect(current func(Listed) bool) (freed int64, err error) {
	freed = s.clearDead()
	all, err := s.List()
	for _, t := range all {
		if current(t) {
			continue
		}
		if e := s.Remove(t.Key); e != nil {
			err = errors.Join(err, e)
			continue
		}
		freed += t.Bytes
	}
	return freed, err
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
