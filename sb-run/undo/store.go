package undo

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/dirs"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// Store is the user's records, opened for use: nobody removes from it until Close.
type Store struct {
	dir  string
	lock *os.File
	lax  bool // nothing is made durable: for tests
}

// Open opens the store, and clears away what a killed process was writing. It
// waits for one that removes.
func Open() (*Store, error) {
	data, err := dirs.Data()
	if err != nil {
		return nil, err
	}
	return openStore(filepath.Join(data, "undo"))
}

func openStore(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{dir, s.path("records"), s.path("objects"), s.path("tmp")} {
		if _, err := dirs.Ensure(d); err != nil {
			return nil, err
		}
	}
	var err error
	if s.lock, err = os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600); err != nil {
		return nil, err
	}
	s.clear()
	if err := s.flock(unix.LOCK_SH); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return s, nil
}

// Close lets others remove.
func (s *Store) Close() { s.lock.Close() }

func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s *Store) flock(how int) error {
	return again(func() error { return unix.Flock(int(s.lock.Fd()), how) })
}

// clear removes what nobody is writing any more, and the bytes that belonged to
// it, if there is any and the store is not in use.
func (s *Store) clear() {
	left, _ := os.ReadDir(s.path("tmp"))
	if len(left) == 0 || s.flock(unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	for _, e := range left {
		os.RemoveAll(s.path("tmp", e.Name()))
	}
	if _, err := s.sweep(); err != nil {
		say.Warn("clear away what a killed run left in %s: %v", s.dir, err)
	}
}

// object is where the bytes of that digest are.
func (s *Store) object(d Digest) string {
	name := hex.EncodeToString(d[:])
	return s.path("objects", name[:2], name[2:])
}

// has reports whether the store has a file of that digest and size.
func (s *Store) has(d Digest, size int64) bool {
	var st unix.Stat_t
	return unix.Lstat(s.object(d), &st) == nil && isType(&st, unix.S_IFREG) && st.Size == size
}

func (s *Store) temp() (*os.File, error) {
	random := make([]byte, 12)
	rand.Read(random)
	return os.OpenFile(s.path("tmp", hex.EncodeToString(random)), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
}

// put adds bytes, and returns whether they were new.
func (s *Store) put(d Digest, text []byte) (added bool, err error) {
	if s.has(d, int64(len(text))) {
		return false, nil
	}
	f, err := s.temp()
	if err != nil {
		return false, err
	}
	out := &holes{to: f}
	_, err = out.Write(text)
	return s.keep(f, d, errors.Join(err, out.end()))
}

// keep ends a temporary file: it becomes the object d, unless err says that it
// failed.
func (s *Store) keep(f *os.File, d Digest, err error) (added bool, _ error) {
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.object(d))
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.Mkdir(filepath.Dir(s.object(d)), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
				err = os.Rename(f.Name(), s.object(d))
			}
		}
	}
	if err != nil {
		os.Remove(f.Name())
		return false, err
	}
	return true, nil
}

// putFile adds what is to be read of from, size bytes, and returns its digest. A
// clone is taken where the file system can: it takes no room.
func (s *Store) putFile(ctx context.Context, from *os.File, size int64) (d Digest, added bool, err error) {
	f, err := s.temp()
	if err != nil {
		return d, false, &storeError{err}
	}
	var in io.Reader = from
	out := &holes{to: f}
	if clone(f, from) == nil {
		in, out = f, &holes{}
	}
	sum := sha256.New()
	tree := &stoppable{ctx: ctx, in: io.LimitReader(in, size+1)}
	n, err := io.Copy(io.MultiWriter(sum, out), tree)
	err = errors.Join(err, out.end())
	sum.Sum(d[:0])
	switch {
	case err != nil && tree.err == nil:
		err = &storeError{err}
	case err == nil && n != size:
		err = errChanged
	}
	if err != nil || s.has(d, size) {
		f.Close()
		os.Remove(f.Name())
		return d, false, err
	}
	if added, err = s.keep(f, d, nil); err != nil {
		err = &storeError{err}
	}
	return d, added, err
}

// storeError is of the store, not of the tree.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// stoppable is a reader that ends with its context, and tells its errors from
// those of a writer.
type stoppable struct {
	ctx context.Context
	in  io.Reader
	err error
}

func (r *stoppable) Read(b []byte) (n int, err error) {
	if err = context.Cause(r.ctx); err == nil {
		n, err = r.in.Read(b)
	}
	if err != io.EOF {
		r.err = err
	}
	return n, err
}

// open opens the bytes of a file of a record.
func (s *Store) open(e *Entry) (*os.File, error) {
	f, err := os.OpenFile(s.object(e.Digest), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("the store has lost its bytes: %w", err)
	}
	return f, nil
}

// publish gives a record a name that none has, and makes it and what it needs
// durable first.
func (s *Store) publish(r *Record, marker *os.File) error {
	base := r.Started.UTC().Format("20060102T150405Z") + "-" + r.Of
	for n := 1; ; n++ {
		r.Name = base
		if n > 1 {
			r.Name = fmt.Sprintf("%s-%d", base, n)
		}
		var text bytes.Buffer
		if err := r.encode(&text); err != nil {
			return err
		}
		err := marker.Truncate(0)
		if err == nil {
			_, err = marker.WriteAt(text.Bytes(), 0)
		}
		if err == nil {
			err = s.settle(marker, r.Added > 0)
		}
		if err == nil {
			// Not a rename: one of the same second is not to be replaced.
			err = os.Link(marker.Name(), s.path("records", r.Name))
		}
		if !errors.Is(err, fs.ErrExist) || n == 1000 {
			return err
		}
	}
}

func (s *Store) settle(f *os.File, all bool) error {
	if s.lax {
		return nil
	}
	return settle(f, all)
}

// List are the records, the newest first. What cannot be read is named in the
// error; the others are listed all the same.
func (s *Store) List() (all []Header, err error) {
	entries, err := os.ReadDir(s.path("records"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		h, herr := s.header(e.Name())
		if herr != nil {
			err = errors.Join(err, herr)
			continue
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b Header) int { return b.Started.Compare(a.Started) })
	return all, err
}

func (s *Store) header(name string) (h Header, err error) {
	f, err := s.openRecord(name)
	if err == nil {
		defer f.Close()
		h, err = decodeHeader(f)
	}
	return s.named(h, name, err)
}

// named checks that a record is the one it is called.
func (s *Store) named(h Header, name string, err error) (Header, error) {
	if err == nil && h.Name != name {
		err = errors.New("it is another one's, by its header")
	}
	if err != nil {
		return h, say.WithHint(fmt.Errorf("read the record %s: %w", name, err), "sb-run undo prune %s removes it", name)
	}
	return h, nil
}

func (s *Store) openRecord(name string) (*os.File, error) {
	if strings.ContainsAny(name, "/\x00") || name == "" || name[0] == '.' {
		return nil, fs.ErrNotExist
	}
	return os.OpenFile(s.path("records", name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Load reads a whole record.
func (s *Store) Load(name string) (*Record, error) {
	f, err := s.openRecord(name)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	defer f.Close()
	r, err := decode(f)
	if err != nil {
		r = &Record{}
	}
	_, err = s.named(r.Header, name, err)
	return r, err
}

// last is the newest record of a tree, or an empty one.
func (s *Store) last(tree string) *Record {
	all, _ := s.List() // one that cannot be read is of no use here
	for _, h := range all {
		if h.Tree != tree {
			continue
		}
		if r, err := s.Load(h.Name); err == nil {
			return r
		}
	}
	return &Record{Header: Header{Started: time.Time{}}}
}
