// Package template keeps machines that were saved right after they had booted,
// before anything of a user's was in them, so that the next one of the kind need
// not boot.
//
// What is in a template is known by what went in: its key is the digest of that
// list (Inputs), whatever is in the list. It lies in a directory of the user's,
// closed to others:
//
//	templates/KEY/memory     the machine's memory, sparse
//	templates/KEY/state      the state of its devices
//	templates/KEY/disk       its writable disk, sparse
//	templates/KEY/made       what went in, and the digests of the three (JSON)
//	templates/KEY/checked    which memory was last found whole; its time is the last use
//	templates/.KEY.lock      held while the template is made
//	templates/.new-KEY-*     one in the making
//
// A template is made under another name and renamed, so it is there whole or not
// at all. Nobody trusts it for being there: Find checks it, and an error of Find
// means that the machine has to boot.
package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sb/lib/dirs"

	"golang.org/x/sys/unix"
)

// Input is one of the things that went into a template. Two templates with a
// different input are two.
type Input struct {
	Name  string `json:"name"` // for people: "kernel"
	Value string `json:"value"`
	File  string `json:"file,omitempty"` // of a Value that Identify made: the file
}

// The names of inputs that mean something here.
const (
	Release = "sb"      // the release of sb, which no other one can start from
	Command = "command" // everything at once, which tells people nothing
)

// Key names the template that those inputs make.
func Key(inputs []Input) string {
	text, err := json.Marshal(inputs)
	if err != nil {
		panic(err) // strings only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Identify is a file as it is now, for an Input: the file by that name, and when it
// was changed last. What is in it need not be read.
func Identify(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprintf("%s (%d bytes, inode %d of %d, changed at %d.%09d, %d.%09d)", path, st.Size, st.Ino, st.Dev,
		st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec), nil
}

// The files of a template, besides those about it.
const (
	Memory = "memory"
	State  = "state"
	Disk   = "disk"
)

var parts = []string{Memory, State, Disk}

// made is the record of a template, in a file of that name.
type made struct {
	Inputs []Input         `json:"inputs"`
	Parts  map[string]part `json:"parts"`
}

// part is a file of a template as it was saved.
type part struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // see digest
}

// maxRecord bounds the files about a template, in bytes.
const maxRecord = 1 << 20

// Store is the directory of the templates.
type Store struct {
	dir string
	max int64 // MaxStore, but for tests
}

// Open returns the user's templates. A directory that others can change is
// refused.
func Open() (*Store, error) {
	data, err := dirs.Data()
	if err != nil {
		return nil, err
	}
	dir, err := dirs.Ensure(filepath.Join(data, "templates"))
	if err != nil {
		return nil, err
	}
	return &Store{dir, MaxStore}, nil
}

// Template is a saved machine, open for reading.
type Template struct {
	Memory, State, Disk *os.File
}

// Close closes its files. Whoever mapped or duplicated them keeps them.
func (t *Template) Close() {
	for _, f := range []*os.File{t.Memory, t.State, t.Disk} {
		if f != nil {
			f.Close()
		}
	}
}

// Find opens the template of that key and checks that it is as it was made. The
// error is fs.ErrNotExist if there is none, and otherwise what is wrong with it.
func (s *Store) Find(key string) (*Template, error) {
	dir := filepath.Join(s.dir, key)
	if _, err := os.Lstat(dir); err != nil {
		return nil, err
	}
	if _, err := dirs.Ensure(dir); err != nil {
		return nil, err
	}
	t := &Template{}
	err := t.open(dir)
	if err == nil {
		err = t.check(dir)
	}
	if err != nil {
		t.Close()
		// There is one, whatever it lacks.
		return nil, errors.New(err.Error())
	}
	return t, nil
}

func (t *Template) open(dir string) (err error) {
	for name, f := range map[string]**os.File{Memory: &t.Memory, State: &t.State, Disk: &t.Disk} {
		if *f, err = openOurs(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// openOurs opens a file for reading that nobody but the user can have changed. It
// does not wait, as the open of a pipe would.
func openOurs(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("%s is no file", path)
	case int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("%s is owned by user %d, not by %d", path, st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		err = fmt.Errorf("%s has mode %04o, which lets others in", path, st.Mode&0o7777)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// check compares the files with the record. The memory, by far the largest, is
// read only if it is not the very file that was found whole since the host
// started: then what the kernel holds of it is what was read.
func (t *Template) check(dir string) error {
	var m made
	if err := readRecord(filepath.Join(dir, "made"), &m); err != nil {
		return err
	}
	if err := errors.Join(t.compare(m, State, t.State), t.compare(m, Disk, t.Disk)); err != nil {
		return err
	}
	if _, err := t.State.Seek(0, io.SeekStart); err != nil { // it is read on from there
		return err
	}
	now, err := identify(t.Memory)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "checked")
	var before identity
	if readRecord(file, &before) == nil && before == now {
		os.Chtimes(file, time.Now(), time.Now())
		return nil
	}
	if err := t.compare(m, Memory, t.Memory); err != nil {
		return err
	}
	// Where nothing can be written it is read again the next time, and as good.
	writeRecord(file, now)
	return nil
}

func (t *Template) compare(m made, name string, f *os.File) error {
	is, err := measure(f)
	if err != nil {
		return err
	}
	if was, ok := m.Parts[name]; !ok || is != was {
		return fmt.Errorf("its %s is not what was saved", name)
	}
	return nil
}

// identity is a file as it is now, on a host that has not started again since:
// whatever changes the file changes one of these.
type identity struct {
	Boot         string
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime [2]int64
}

func identify(f *os.File) (identity, error) {
	boot, err := bootID()
	if err != nil {
		return identity{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, err
	}
	return identity{boot, uint64(st.Dev), st.Ino, st.Size, times(st.Mtim), times(st.Ctim)}, nil
}

func times(t unix.Timespec) [2]int64 { return [2]int64{int64(t.Sec), int64(t.Nsec)} }

func readRecord(path string, v any) error {
	f, err := openOurs(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err == nil && len(text) > maxRecord {
		err = errors.New("too long")
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// writeRecord makes the file whole or not at all.
func writeRecord(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".record-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Remove takes a template away. Machines that run from it go on.
func (s *Store) Remove(key string) error {
	return removeAll(filepath.Join(s.dir, key))
}

// removeAll first takes the name away, so that nobody finds the half of it.
func removeAll(dir string) error {
	gone := filepath.Join(filepath.Dir(dir), ".new-gone-"+filepath.Base(dir))
	if err := os.Rename(dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		// One that was left there before is in the way.
		if err := errors.Join(os.RemoveAll(gone), os.Rename(dir, gone)); err != nil {
			return err
		}
	}
	return os.RemoveAll(gone)
}
