package state

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Store is the directory of one agent's state.
type Store struct{ Dir string }

// The files of a store.
const (
	archiveFile = "state.tar"
	seededFile  = "seeded" // the directories whose seeds were taken, quoted, one a line
	lockFile    = "lock"
	newFiles    = "new-*" // what is being written, locked by its writer
)

// Seed is a file of the host's own.
type Seed struct {
	Name string // relative to the home
	Mode int64
	Time time.Time
	Text []byte
}

// Base is the state that a sandbox begins with.
type Base struct {
	file *os.File
	all  index
}

// Close closes it.
func (b *Base) Close() error { return b.file.Close() }

// read reads the archive from its beginning.
func (b *Base) read() io.Reader { return io.NewSectionReader(b.file, 0, 1<<62) }

// WriteTo writes the archive.
func (b *Base) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, b.read())
}

// Begin returns the state. What was not seeded yet is: seeds is asked for the files,
// those of all directories (first) and those of this one alone (here).
func (s Store) Begin(f Filter, dir string, seeds func(first, here bool) ([]Seed, error)) (*Base, error) {
	lock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	s.sweep()
	_, err = os.Lstat(s.file(archiveFile))
	first := errors.Is(err, fs.ErrNotExist)
	if err != nil && !first {
		return nil, err
	}
	seeded, _ := os.ReadFile(s.file(seededFile))
	if first {
		seeded = nil
	}
	line := []byte(strconv.Quote(dir) + "\n")
	here := !bytes.Contains(append([]byte("\n"), seeded...), append([]byte("\n"), line...))
	if first || here {
		more, err := seeds(first, here)
		if err != nil {
			return nil, err
		}
		if first || len(more) > 0 {
			if err := s.seed(f, first, more); err != nil {
				return nil, err
			}
		}
		if err := os.WriteFile(s.file(seededFile), append(seeded, line...), 0o600); err != nil {
			return nil, err
		}
	}
	return s.open(f)
}

// seed adds files to the archive, those that it does not have.
func (s Store) seed(f Filter, first bool, more []Seed) error {
	return s.replace(func(out *tar.Writer) error {
		all := index{}
		if !first {
			old, err := os.Open(s.file(archiveFile))
			if err != nil {
				return err
			}
			defer old.Close()
			if all, err = f.Copy(out, bufio.NewReader(old)); err != nil {
				return err
			}
		}
		for _, seed := range more {
			// What a guest left in its place stays, also where that is above it.
			if _, there := all[seed.Name]; there || all.below(seed.Name) || all.holds(seed.Name) || f.Drop(seed.Name) || all.bytes()+int64(len(seed.Text)) > MaxBytes || len(all) >= MaxEntries {
				continue
			}
			h := &tar.Header{Typeflag: tar.TypeReg, Mode: seed.Mode & 0o777, Size: int64(len(seed.Text)), ModTime: seed.Time}
			e, err := add(out, seed.Name, h, bytes.NewReader(seed.Text))
			if err != nil {
				return err
			}
			all[seed.Name] = e
		}
		return nil
	}, nil)
}

// holds tells whether there is something below a name.
func (all index) holds(name string) bool {
	for other := range all {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

// open reads what the archive has.
func (s Store) open(f Filter) (*Base, error) {
	file, err := os.Open(s.file(archiveFile))
	if err != nil {
		return nil, err
	}
	all, err := f.Copy(tar.NewWriter(io.Discard), bufio.NewReader(file))
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("read %s: %w", s.file(archiveFile), err)
	}
	return &Base{file, all}, nil
}

// ErrReset is the error about a state that was reset while a sandbox used it.
var ErrReset = errors.New("it was reset meanwhile")

// Keep takes the place of the state that a sandbox began with by what read writes: an
// archive as the guest made it. Where another sandbox was as fast, both are joined,
// and returned are the files that both had changed. On an error nothing changes.
func (s Store) Keep(f Filter, base *Base, read func(io.Writer) error) (both []string, err error) {
	var mine index
	err = s.replace(func(out *tar.Writer) error {
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			err := read(w)
			w.CloseWithError(err)
			done <- err
		}()
		mine, err = f.Copy(out, bufio.NewReader(r))
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		r.CloseWithError(err)
		if other := <-done; !errors.Is(err, other) {
			err = errors.Join(err, other)
		}
		return err
	}, func(name string) error {
		both, err = s.join(f, base, name, mine)
		return err
	})
	return both, err
}

// join puts a new archive in the place of the one that is there, which is locked.
func (s Store) join(f Filter, base *Base, name string, mine index) (both []string, err error) {
	theirs, err := s.open(f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrReset
	}
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	before, err1 := base.file.Stat()
	now, err2 := theirs.file.Stat()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if os.SameFile(before, now) {
		return nil, os.Rename(name, s.file(archiveFile))
	}
	c := choose(base.all, mine, theirs.all)
	if c.bytes(mine, theirs.all) > MaxBytes || len(c.mine)+len(c.theirs) > MaxEntries {
		return nil, fmt.Errorf("join what two sandboxes left: %w", ErrBounds)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	defer os.Remove(name)
	return c.both, s.write(func(out *tar.Writer) error {
		if err := f.only(out, bufio.NewReader(theirs.read()), c.theirs); err != nil {
			return err
		}
		return f.only(out, bufio.NewReader(file), c.mine)
	}, func(joined string) error { return os.Rename(joined, s.file(archiveFile)) })
}

// replace writes a new archive and puts it in place: itself, where it holds the lock,
// or else by what place does under it.
func (s Store) replace(fill func(*tar.Writer) error, place func(name string) error) error {
	return s.write(fill, func(name string) error {
		if place == nil {
			return os.Rename(name, s.file(archiveFile))
		}
		lock, err := s.lock()
		if err != nil {
			return err
		}
		defer lock.Close()
		return place(name)
	})
}

// write writes an archive whole under a name of its own, and then has it placed.
func (s Store) write(fill func(*tar.Writer) error, place func(name string) error) error {
	file, err := os.CreateTemp(s.Dir, newFiles)
	if err != nil {
		return err
	}
	defer file.Close()
	defer os.Remove(file.Name())
	if err := flock(file, unix.LOCK_EX); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	out := tar.NewWriter(buffered)
	err = fill(out)
	if err == nil {
		err = errors.Join(out.Close(), buffered.Flush(), file.Sync())
	}
	if err == nil {
		err = place(file.Name())
	}
	return err
}

// Reset removes the state; the next sandbox is seeded again.
func (s Store) Reset() error {
	lock, err := s.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, name := range []string{archiveFile, seededFile} {
		if err := os.Remove(s.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Size is how many bytes the state has on the disk; 0 if there is none.
func (s Store) Size() int64 {
	st, err := os.Lstat(s.file(archiveFile))
	if err != nil {
		return 0
	}
	return st.Size()
}

// sweep removes what writers that were killed left.
func (s Store) sweep() {
	left, _ := filepath.Glob(s.file(newFiles))
	for _, name := range left {
		file, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		st, err := file.Stat() // one that is new may not be locked yet
		if err == nil && time.Since(st.ModTime()) > time.Minute && flock(file, unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(name)
		}
		file.Close()
	}
}

func (s Store) file(name string) string { return filepath.Join(s.Dir, name) }

// lock has one at a time change the state.
func (s Store) lock() (*os.File, error) {
	file, err := os.OpenFile(s.file(lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file, unix.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", strings.TrimSuffix(s.Dir, "/"), err)
	}
	return file, nil
}

func flock(file *os.File, how int) error {
	for {
		if err := unix.Flock(int(file.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
