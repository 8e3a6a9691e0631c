package template

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// Draft is a template in the making, whose maker holds the lock on its key.
type Draft struct {
	store  *Store
	key    string
	inputs []Input
	dir    string // the lock is on it too: what holds none was left
	lock   *os.File
}

// Lock waits until this process alone may make the template of those inputs,
// and gives it a place to make it in. The caller looks again whether it is there
// now, and ends with Publish or Discard.
func (s *Store) Lock(ctx context.Context, inputs []Input) (*Draft, error) {
	key := Key(inputs)
	lock, err := s.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	s.clearKilled(key)
	dir, err := os.MkdirTemp(s.dir, ".new-"+key+"-*")
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Draft{s, key, inputs, dir, lock}, nil
}

func (s *Store) lockFile(key string) string { return filepath.Join(s.dir, "."+key+".lock") }

// lock is held until the file is closed, or its process has ended.
func (s *Store) lock(ctx context.Context, key string) (*os.File, error) {
	for {
		f, err := os.OpenFile(s.lockFile(key), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := waitFor(ctx, f); err != nil {
			f.Close()
			return nil, err
		}
		held, err1 := f.Stat()
		now, err2 := os.Lstat(f.Name())
		if err1 == nil && err2 == nil && os.SameFile(held, now) {
			return f, nil
		}
		f.Close() // it was removed meanwhile
	}
}

// waitFor takes the lock on f. A wait that is given up ends when its turn comes.
func waitFor(ctx context.Context, f *os.File) error {
	err := flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	say.Note("waiting for another start that saves the same machine")
	own, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	locked := make(chan error, 1)
	go func() {
		defer unix.Close(own)
		locked <- flock(own, unix.LOCK_EX)
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

// Path is where the maker puts that part.
func (d *Draft) Path(part string) string { return filepath.Join(d.dir, part) }

// Publish gives the template its name. The files are not written out first: a
// host that stops before they are on the disk starts again, and after that they
// are compared with the digests that are made here.
func (d *Draft) Publish() error {
	m := made{Inputs: d.inputs, Parts: map[string]part{}}
	var found identity
	for _, name := range parts {
		f, err := openOurs(d.Path(name))
		if err != nil {
			return err
		}
		m.Parts[name], err = measure(f)
		if err == nil && name == Memory {
			found, err = identify(f)
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	err := errors.Join(writeRecord(d.Path("made"), m), writeRecord(d.Path("checked"), found))
	to := filepath.Join(d.store.dir, d.key)
	if err == nil {
		err = removeAll(to) // what Find did not take
	}
	if err == nil {
		err = os.Rename(d.dir, to)
	}
	if err == nil {
		d.store.clear(d.key)
	}
	return err
}

// Refuse notes why there can be none, see [Store.Refuse], for whoever waits for the
// lock too. What was made goes first: the disk may be full of it. Emptied it gives
// its room back at once; the mounts of a machine that was killed hold it for longer.
func (d *Draft) Refuse(why string) {
	for _, part := range parts {
		os.Truncate(d.Path(part), 0)
	}
	os.RemoveAll(d.dir)
	d.store.Refuse(d.key, why)
}

// Discard gives up what was not published, and the lock.
func (d *Draft) Discard() {
	os.RemoveAll(d.dir)
	d.lock.Close()
}

// refusalTime is how long nobody tries again what failed.
const refusalTime = time.Hour

// Refuse notes why there can be no template of that key, so that not each start
// tries in vain.
func (s *Store) Refuse(key, why string) {
	writeRecord(filepath.Join(s.dir, "."+key+".refused"), why)
}

// Refused is why, "" if nothing was noted within the hour.
func (s *Store) Refused(key string) (why string) {
	file := filepath.Join(s.dir, "."+key+".refused")
	if st, err := os.Lstat(file); err != nil || time.Since(st.ModTime()) > refusalTime {
		return ""
	}
	readRecord(file, &why)
	return why
}

// MaxStore is how many bytes of the disk templates may take: beyond it those go
// that were not used for longest.
const MaxStore = 4 << 30

// clearKilled removes the drafts of the makers before that were killed. Its caller
// holds the lock on the key, so that none is in the making.
func (s *Store) clearKilled(key string) {
	for _, dir := range s.named(".new-"+key+"-", "") {
		os.RemoveAll(dir)
	}
}

// named are the paths in the store whose names begin and end so. (A Glob would take
// the store's own path for a pattern.)
func (s *Store) named(begin, end string) (paths []string) {
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), begin) && strings.HasSuffix(e.Name(), end) {
			paths = append(paths, filepath.Join(s.dir, e.Name()))
		}
	}
	return paths
}

// clear removes what makers that were killed left, and what is too much besides
// the template that was just made.
func (s *Store) clear(made string) {
	s.clearDead()
	all, err := s.List()
	if err != nil {
		return
	}
	var sum int64
	for _, t := range all { // the last used first
		if sum += t.Bytes; sum > s.max && t.Key != made {
			s.Remove(t.Key)
		}
	}
}

// clearDead removes the drafts whose maker holds no lock any more, and returns
// how many bytes that made free.
func (s *Store) clearDead() (freed int64) {
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), ".new-")
		if !ok {
			continue
		}
		key, _, _ := strings.Cut(rest, "-")
		f, err := os.OpenFile(s.lockFile(key), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err == nil {
			err = flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			dir := filepath.Join(s.dir, e.Name())
			freed += diskUse(dir)
			os.RemoveAll(dir)
		}
		if f != nil {
			f.Close()
		}
	}
	return freed
}
