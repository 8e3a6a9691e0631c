package undo

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// Limits bound the store.
type Limits struct {
	Keep int   // records of one tree
	Size int64 // bytes of all files
}

// Pruned is what was removed.
type Pruned struct {
	Records []string
	Freed   int64 // bytes
	Used    int64 // bytes of what is left, where that was measured
}

// alone runs f while nobody else uses the store. If it is in use, it is not run
// unless there is time to wait.
func (s *Store) alone(wait bool, f func() error) error {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	err := s.flock(how)
	if err == unix.EWOULDBLOCK {
		err = nil
		f = func() error { return nil }
	}
	if err == nil {
		err = f()
	}
	return errors.Join(err, s.flock(unix.LOCK_SH))
}

// Prune removes the records that drop chooses of all, the newest first, and the
// bytes that no other has.
func (s *Store) Prune(drop func([]Header) []Header) (p Pruned, err error) {
	err = s.alone(true, func() error {
		all, err := s.List()
		if err != nil {
			say.Warn("%v", err)
		}
		for _, h := range drop(all) {
			if err := s.remove(h.Name); err != nil {
				return err
			}
			p.Records = append(p.Records, h.Name)
		}
		p.Freed, err = s.sweep()
		return err
	})
	return p, err
}

// Remove removes records by their names, one that cannot be read among them.
func (s *Store) Remove(names []string) (p Pruned, err error) {
	err = s.alone(true, func() error {
		for _, name := range names {
			if err := s.remove(name); err != nil {
				return err
			}
			p.Records = append(p.Records, name)
		}
		p.Freed, err = s.sweep()
		return err
	})
	return p, err
}

func (s *Store) remove(name string) error {
	f, err := s.openRecord(name)
	if err == nil {
		f.Close()
		err = os.Remove(s.path("records", name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("there is no such record")
	}
	if err != nil {
		return say.WithHint(fmt.Errorf("remove the record %s: %w", name, err), "sb-run undo ls lists the records")
	}
	return nil
}

// BeforeRestore is what a record is made for that a restore makes.
const BeforeRestore = "before-restore"

// Beyond are the records of each tree that are more than keep: of those made before
// runs, and of those made before restores. They are counted apart, for else to put
// back one file after the other would remove the record that they come from.
func Beyond(all []Header, keep int) (old []Header) {
	type kind struct {
		tree    string
		restore bool
	}
	seen := map[kind]int{}
	for _, h := range all {
		k := kind{h.Tree, h.Of == BeforeRestore}
		if seen[k]++; seen[k] > keep {
			old = append(old, h)
		}
	}
	return old
}

// Older are the records that were made before t.
func Older(all []Header, t time.Time) (old []Header) {
	return slices.DeleteFunc(slices.Clone(all), func(h Header) bool { return !h.Started.Before(t) })
}

// Limit keeps the store within its limits after r was recorded, which stays, and so do
// those of the names in stays: what a guest left must not be so much that the record
// that is restored goes for it. If others use the store, the next one does it.
func (s *Store) Limit(r *Record, l Limits, stays ...string) (p Pruned, err error) {
	stays = append(stays, r.Name)
	err = s.alone(false, func() error {
		all, _ := s.List()
		old := Beyond(all, l.Keep)
		if len(old) == 0 && r.Added == 0 {
			return nil
		}
		old = slices.DeleteFunc(old, func(h Header) bool { return slices.Contains(stays, h.Name) })
		for _, h := range old {
			if err := s.remove(h.Name); err != nil {
				return err
			}
			p.Records = append(p.Records, h.Name)
		}
		if len(old) > 0 {
			if p.Freed, err = s.sweep(); err != nil {
				return err
			}
		}
		return s.limitSize(stays, l.Size, &p)
	})
	return p, err
}

// limitSize removes the oldest records until what is left is small enough.
func (s *Store) limitSize(stays []string, size int64, p *Pruned) error {
	for {
		used, err := s.Size()
		p.Used = used
		if err != nil || used <= size {
			return err
		}
		all, _ := s.List()
		all = slices.DeleteFunc(all, func(h Header) bool { return slices.Contains(stays, h.Name) })
		if len(all) == 0 {
			return nil
		}
		oldest := all[len(all)-1].Name
		if err := s.remove(oldest); err != nil {
			return err
		}
		p.Records = append(p.Records, oldest)
		freed, err := s.sweep()
		if p.Freed += freed; err != nil {
			return err
		}
	}
}

// objects calls f for every file of the store, with its path.
func (s *Store) objects(f func(d Digest, path string) error) error {
	folders, err := os.ReadDir(s.path("objects"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		dir, err := os.Open(s.path("objects", folder.Name()))
		if err != nil {
			return err
		}
		names, err := dir.Readdirnames(-1)
		dir.Close()
		if err != nil {
			return err
		}
		for _, name := range names {
			var d Digest
			path := s.path("objects", folder.Name(), name)
			b, err := hex.DecodeString(folder.Name() + name)
			if copy(d[:], b) != len(d) || err != nil {
				return fmt.Errorf("%s is nothing of the store's", path)
			}
			if err := f(d, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Size is how many bytes the files of the store take on the disk.
func (s *Store) Size() (sum int64, err error) {
	err = s.objects(func(_ Digest, path string) error {
		st, err := os.Lstat(path)
		if err == nil {
			sum += onDisk(st)
		}
		return err
	})
	return sum, err
}

// onDisk is what a file takes there: holes take nothing.
func onDisk(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return min(st.Size(), int64(sys.Blocks)*512)
	}
	return st.Size()
}

// sweep removes the files that no record has. A record that cannot be read may
// have any of them: then all stay.
func (s *Store) sweep() (freed int64, err error) {
	names, err := os.ReadDir(s.path("records"))
	if err != nil {
		return 0, err
	}
	used := map[Digest]bool{}
	for _, n := range names {
		r, err := s.Load(n.Name())
		if err != nil {
			return 0, err
		}
		for i := range r.Entries {
			if r.Entries[i].Kind == File {
				used[r.Entries[i].Digest] = true
			}
		}
	}
	err = s.objects(func(d Digest, path string) error {
		if used[d] {
			return nil
		}
		st, err := os.Lstat(path)
		if err == nil {
			if err = os.Remove(path); err == nil {
				freed += st.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return freed, err
}
