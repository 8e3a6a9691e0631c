package undo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// racy is how long before a record a file must have changed last for its times to
// tell whether it changed since (git's "racy git"; some file systems have times of
// two seconds).
const racy = 2 * time.Second

// tries is how often a file or directory is read that changes meanwhile.
const tries = 3

// errChanged is that of a file that changed while it was read.
var errChanged = errors.New("changed while it was recorded")

// scanner looks at a tree.
type scanner struct {
	ctx   context.Context
	store *Store // nil: nothing is kept, files are only compared
	rec   *Record
	prev  map[string]*Entry
	fresh time.Time // what changed after it is read again

	mu  sync.Mutex // of rec
	buf sync.Pool
}

// Scan is the tree as it is, of which nothing is kept: a record to compare with.
func (s *Store) Scan(ctx context.Context, tree string, rules Rules) (*Record, error) {
	return s.scan(ctx, tree, rules, nil)
}

// Record records a tree. Of is the sandbox that it is recorded for. Only if there is
// no error is there a record, and then it is whole but for what it lists as
// skipped; what failed leaves nothing.
func (s *Store) Record(ctx context.Context, tree, of string, rules Rules) (*Record, error) {
	marker, err := s.temp()
	if err != nil {
		return nil, recordFailed(tree, err)
	}
	r, err := s.scan(ctx, tree, rules, s)
	if err == nil {
		r.Of = of
		err = s.publish(r, marker)
	}
	marker.Close()
	if err == nil {
		os.Remove(marker.Name())
		return r, nil
	}
	// The marker, and what belongs to it: the bytes that are no record's.
	s.clear()
	s.flock(unix.LOCK_SH)
	return nil, recordFailed(tree, err)
}

func recordFailed(tree string, err error) error {
	err = fmt.Errorf("record %s: %w", tree, err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return say.WithHint(err, "sb-run undo prune --keep 1 makes room")
	}
	return err
}

func (s *Store) scan(ctx context.Context, tree string, rules Rules, keep *Store) (*Record, error) {
	start := time.Now()
	before := s.last(tree)
	c := &scanner{ctx: ctx, store: keep, prev: before.byPath(), fresh: before.Started.Add(-racy)}
	c.rec = &Record{Header: Header{Version: formVersion, Tree: tree, Started: start.UTC(), Rules: rules}}
	c.rec.Entries = make([]Entry, 0, len(before.Entries))
	root, err := openTree(tree)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	if err := c.dir(root, ""); err != nil {
		return nil, err
	}
	c.rec.sort()
	if len(c.rec.Entries) == 0 || c.rec.Entries[0].Path != "" {
		for _, s := range c.rec.Skipped {
			if s.Path == "" {
				return nil, fmt.Errorf("it cannot be read: %s", s.Why)
			}
		}
		return nil, errors.New("it cannot be read")
	}
	if n := len(c.rec.Entries) + len(c.rec.Skipped); n > MaxEntries {
		return nil, say.WithHint(fmt.Errorf("it has more than %d files", MaxEntries), "name folders to leave out under [records] ignore of config.toml")
	}
	c.rec.Took = time.Since(start)
	return c.rec, nil
}

func (c *scanner) add(e Entry) {
	c.mu.Lock()
	c.rec.Entries = append(c.rec.Entries, e)
	c.mu.Unlock()
}

func (c *scanner) skip(path, why string) {
	c.mu.Lock()
	c.rec.Skipped = append(c.rec.Skipped, Skipped{Path: path, Why: why})
	c.mu.Unlock()
}

// dir records an open directory and what is in it. The error is one of the store,
// or that it was told to end.
func (c *scanner) dir(fd int, path string) error {
	names, err := c.own(fd, path)
	if err != nil {
		c.skip(path, cause(err))
		return nil
	}
	var files, dirs []string
	for _, name := range names {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		at := join(path, name)
		if len(at) > maxPath {
			c.skip(path, "what is in it has paths that are too long")
			continue
		}
		st, err := statAt(fd, name)
		switch {
		case err == unix.ENOENT: // it went before it was reached
		case err != nil:
			c.skip(at, cause(err))
		case isType(&st, unix.S_IFDIR) && slices.Contains(c.rec.Rules.Ignore, name):
			c.rec.Skipped = append(c.rec.Skipped, Skipped{Path: at, Why: "ignored by rule", Ignored: true})
		case isType(&st, unix.S_IFDIR):
			dirs = append(dirs, name)
		case isType(&st, unix.S_IFREG) && c.known(at, &st):
		case isType(&st, unix.S_IFREG):
			files = append(files, name)
		case isType(&st, unix.S_IFLNK):
			c.link(fd, name, at, &st)
		default:
			c.skip(at, special(&st))
		}
	}
	if err := c.files(fd, path, files); err != nil {
		return err
	}
	for _, name := range dirs {
		if err := c.below(fd, name, join(path, name)); err != nil {
			return err
		}
	}
	return nil
}

func (c *scanner) below(at int, name, path string) error {
	fd, err := openDirAt(at, name)
	switch {
	case err == unix.ENOENT:
		return nil
	case err == unix.ENOTDIR || err == unix.ELOOP:
		err = errChanged
	}
	if err != nil {
		c.skip(path, cause(err))
		return nil
	}
	defer unix.Close(fd)
	return c.dir(fd, path)
}

// own records a directory itself, as it was when its names were read.
func (c *scanner) own(fd int, path string) (names []string, err error) {
	for range tries {
		before, err := stat(fd)
		if err != nil {
			return nil, err
		}
		if names, err = list(fd); err != nil {
			return nil, err
		}
		attrs, err := attributes(fd)
		if err != nil {
			return nil, err
		}
		st, err := stat(fd)
		if err != nil {
			return nil, err
		}
		if same(&before, &st) {
			e := entryOf(Dir, path, &st)
			e.Attributes = attrs
			c.add(e)
			return names, nil
		}
	}
	return nil, errChanged
}

// known takes a file from the record before, if nothing says that it changed since
// and its bytes are there.
func (c *scanner) known(path string, st *unix.Stat_t) bool {
	was := c.prev[path]
	if was == nil || was.Kind != File || was.Identity != identity(st) || was.Size != st.Size || was.Mtime != timeOf(st.Mtim) {
		return false
	}
	if was.Mtime.after(c.fresh) || was.Identity.Ctime.after(c.fresh) {
		return false
	}
	if c.store != nil && !c.store.has(was.Digest, was.Size) || was.Size > c.rec.Rules.Largest {
		return false
	}
	c.rec.Entries = append(c.rec.Entries, *was)
	return true
}

func (c *scanner) link(at int, name, path string, st *unix.Stat_t) {
	target, err := readLink(at, name)
	if err != nil {
		c.skip(path, cause(err))
		return
	}
	e := entryOf(Link, path, st)
	e.Target = target
	c.add(e)
}

// files reads files of one directory, as many at a time as there are processors.
func (c *scanner) files(at int, dir string, names []string) error {
	work := make(chan string)
	failed := make([]error, min(len(names), runtime.GOMAXPROCS(0)))
	var all sync.WaitGroup
	for i := range failed {
		all.Go(func() {
			for name := range work {
				if failed[i] == nil {
					failed[i] = c.file(at, name, join(dir, name))
				}
			}
		})
	}
	for _, name := range names {
		work <- name
	}
	close(work)
	all.Wait()
	return errors.Join(failed...)
}

// file records one file, or why it is not. The error is one of the store.
func (c *scanner) file(at int, name, path string) error {
	for range tries {
		e, err := c.read(at, name, path)
		var broken *storeError
		switch {
		case err == nil:
			c.add(e)
			return nil
		case errors.As(err, &broken):
			return broken.err
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case err == unix.ENOENT:
			return nil
		case !errors.Is(err, errChanged):
			c.skip(path, cause(err))
			return nil
		}
	}
	c.skip(path, errChanged.Error())
	return nil
}

// read reads a file that is as long, and as old, before as after.
func (c *scanner) read(at int, name, path string) (Entry, error) {
	fd, err := openAt(at, name, unix.O_RDONLY, 0)
	if err == unix.ELOOP {
		err = errChanged
	}
	if err != nil {
		return Entry{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	before, err := stat(fd)
	if err != nil {
		return Entry{}, err
	}
	if !isType(&before, unix.S_IFREG) {
		return Entry{}, errors.New(special(&before))
	}
	if before.Size > c.rec.Rules.Largest {
		return Entry{}, fmt.Errorf("larger than %d bytes", c.rec.Rules.Largest)
	}
	e := entryOf(File, path, &before)
	added := false
	if e.Digest, added, err = c.take(f, before.Size); err != nil {
		return Entry{}, err
	}
	if e.Attributes, err = attributes(fd); err != nil {
		return Entry{}, err
	}
	after, err := stat(fd)
	if err == nil && !same(&before, &after) {
		err = errChanged
	}
	c.mu.Lock()
	c.rec.Read++
	if added {
		c.rec.Added += before.Size
	}
	c.mu.Unlock()
	return e, err
}

// small is up to what size a file is read into memory.
const small = 1 << 20

// take reads the bytes of a file, and keeps them.
func (c *scanner) take(f *os.File, size int64) (d Digest, added bool, err error) {
	if size > small {
		if c.store == nil {
			return digestOf(c.ctx, f, size)
		}
		return c.store.putFile(c.ctx, f, size)
	}
	buf, _ := c.buf.Get().(*[small + 1]byte)
	if buf == nil {
		buf = new([small + 1]byte)
	}
	defer c.buf.Put(buf)
	switch n, err := io.ReadFull(f, buf[:size+1]); {
	case err != nil && err != io.ErrUnexpectedEOF && err != io.EOF:
		return d, false, err
	case int64(n) != size:
		return d, false, errChanged
	}
	d = sha256.Sum256(buf[:size])
	if c.store == nil {
		return d, false, nil
	}
	if added, err = c.store.put(d, buf[:size]); err != nil {
		err = &storeError{err}
	}
	return d, added, err
}

func digestOf(ctx context.Context, f io.Reader, size int64) (d Digest, added bool, err error) {
	sum := sha256.New()
	n, err := io.Copy(sum, &stoppable{ctx: ctx, in: io.LimitReader(f, size+1)})
	if err == nil && n != size {
		err = errChanged
	}
	sum.Sum(d[:0])
	return d, false, err
}
