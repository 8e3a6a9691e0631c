package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sb/lib/dirs"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// The store is a directory of the user's:
//
//	images/HEX.erofs     the root file system of the image with that digest
//	images/HEX.json      what it is; written last, so without it there is no image
//	refs/HEX.json        which digest a reference stood for when it was last pulled
//	blobs/HEX            layers on their way into an image
//	kernel/VERSION-HEX/  a kernel; kernel/ARCH is a link to the one in use
//	templates/           saved machines: package template, which sb-vm writes
//	tmp/                 what is being made
//	locks/               held while a thing is made or changed
//
// A thing is made in tmp and renamed to its place, so it is there whole or not
// at all. Whoever makes one holds a lock on it: that, never a process number,
// tells gc what is left of the dead.
type store struct{ dir string }

func openStore() (*store, error) {
	dir, err := dirs.Data()
	if err != nil {
		return nil, err
	}
	s := &store{dir}
	for _, sub := range []string{"images", "refs", "blobs", "kernel", "tmp", "locks"} {
		if err := os.Mkdir(s.path(sub), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return s, nil
}

func (s *store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// key names a file after text that may hold any byte.
func key(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// temp is a file in the making. Nobody sees it before publish.
type temp struct {
	*os.File
	published bool
}

func (s *store) temp(kind string) (*temp, error) {
	for {
		f, err := os.CreateTemp(s.path("tmp"), kind+"-*")
		if err != nil {
			return nil, err
		}
		// gc may have removed it before it was locked.
		if held, err := tryLock(f); err != nil {
			f.Close()
			return nil, err
		} else if held && samePath(f) {
			return &temp{File: f}, nil
		}
		f.Close()
	}
}

// publish writes the file out and gives it its name. The caller still closes it
// with discard.
func (t *temp) publish(path string) error {
	if err := t.Sync(); err != nil {
		return err
	}
	if err := os.Rename(t.Name(), path); err != nil {
		return err
	}
	t.published = true
	return syncDir(filepath.Dir(path))
}

// discard closes the file, and removes it if it was not published.
func (t *temp) discard() {
	if !t.published {
		os.Remove(t.Name())
	}
	t.Close()
}

// write makes a small file whole.
func (s *store) write(path string, content []byte) error {
	t, err := s.temp("write")
	if err != nil {
		return err
	}
	defer t.discard()
	if _, err := t.Write(content); err != nil {
		return err
	}
	return t.publish(path)
}

// tempDir makes a directory to make something in. The caller closes the lock
// when it is done, and removes the directory unless it renamed it.
func (s *store) tempDir(kind string) (dir string, lock *os.File, err error) {
	for {
		dir, err := os.MkdirTemp(s.path("tmp"), kind+"-*")
		if err != nil {
			return "", nil, err
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if held, err := tryLock(f); err == nil && held && samePath(f) {
			return dir, f, nil
		}
		f.Close()
	}
}

// lock waits until this process alone works on the thing called name. Closing
// the file gives it free.
func (s *store) lock(ctx context.Context, name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(s.path("locks", key(name)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := wait(ctx, f, name); err != nil {
			f.Close()
			return nil, err
		}
		if samePath(f) {
			return f, nil
		}
		f.Close() // gc removed it meanwhile
	}
}

// tryLockName returns nil if another process works on the thing called name.
func (s *store) tryLockName(name string) (*os.File, error) {
	f, err := os.OpenFile(s.path("locks", key(name)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if held, err := tryLock(f); err != nil || !held || !samePath(f) {
		f.Close()
		return nil, err
	}
	return f, nil
}

func wait(ctx context.Context, f *os.File, name string) error {
	held, err := tryLock(f)
	if err != nil || held {
		return err
	}
	say.Note("waiting for another sb-image that is at work on %s", name)
	locked := make(chan error, 1)
	go func() {
		for {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryLock takes the lock on f for this process alone, if nobody has it.
func tryLock(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case nil:
			return true, nil
		case unix.EWOULDBLOCK:
			return false, nil
		case unix.EINTR:
		default:
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// samePath reports whether f's name still leads to f.
func samePath(f *os.File) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(held, now)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
