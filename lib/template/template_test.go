package template

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func testStore(t *testing.T) *Store {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home[1]*") // a path is no pattern
	t.Setenv("SB_HOME", home)
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var someInputs = []Input{{Name: Release, Value: "0.1.0-dev"}, {Name: "cpus", Value: "2"}}

// content is a memory of 4 MiB with something at both ends, and holes.
func content() []byte {
	b := make([]byte, 4<<20)
	copy(b, "the first page")
	copy(b[len(b)-5:], "last")
	return b
}

// publish makes a template of those inputs.
func publish(t *testing.T, s *Store, inputs []Input) (key string) {
	t.Helper()
	d, err := s.Lock(context.Background(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	fill(t, d)
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	return Key(inputs)
}

func fill(t *testing.T, d *Draft) {
	t.Helper()
	for name, b := range map[string][]byte{Memory: content(), State: []byte("state"), Disk: content()[:1<<20]} {
		if err := os.WriteFile(d.Path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, f *os.File) []byte {
	t.Helper()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPublishFind(t *testing.T) {
	s := testStore(t)
	if _, err := s.Find(Key(someInputs)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before there is one: %v", err)
	}
	key := publish(t, s, someInputs)
	for range 2 { // looked at anew, and known to be whole
		f, err := s.Find(key)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, f.State); string(got) != "state" {
			t.Errorf("the state is %q: it is not read from its beginning", got)
		}
		if flags, err := unix.FcntlInt(f.Memory.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("the memory can be written: flags %#x (%v)", flags, err)
		}
		f.Close()
	}
	for _, name := range []string{".", Memory, State, Disk, "made", "checked"} {
		st, err := os.Stat(filepath.Join(s.dir, key, name))
		if err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if got, _ := os.ReadDir(s.dir); len(got) != 2 { // and the lock
		t.Errorf("the store holds %v", got)
	}
}

// TestKey: each input, and its name, is part of the key.
func TestKey(t *testing.T) {
	seen := map[string]bool{}
	for _, inputs := range [][]Input{nil, {{Name: "a", Value: "b"}}, {{Name: "a", Value: "c"}}, {{Name: "b", Value: "b"}},
		{{Name: "a", Value: "b"}, {Name: "c"}}, {{Name: "ab"}}, {{Value: "ab"}}} {
		if key := Key(inputs); seen[key] {
			t.Errorf("%v has the key of another", inputs)
		} else {
			seen[key] = true
		}
	}
	if Key(someInputs) != Key(append([]Input(nil), someInputs...)) {
		t.Error("control: the same inputs have two keys")
	}
}

// TestDamage: what is not as it was saved, or could have been changed by others,
// is not found; a new one can take its place.
func TestDamage(t *testing.T) {
	flip := func(name string, at int64) func(string) error {
		return func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			st, _ := f.Stat()
			var b [1]byte
			if _, err := f.ReadAt(b[:], at); err != nil {
				return err
			}
			b[0] ^= 1
			if _, err := f.WriteAt(b[:], at); err != nil {
				return err
			}
			return os.Chtimes(f.Name(), st.ModTime(), st.ModTime()) // the time tells nothing
		}
	}
	cut := func(name string, size int64) func(string) error {
		return func(dir string) error { return os.Truncate(filepath.Join(dir, name), size) }
	}
	gone := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	for what, c := range map[string]struct {
		damage func(dir string) error
		want   string
	}{
		"a bit of the memory":           {flip(Memory, 3), "its memory is not"},
		"a bit in a hole":               {flip(Memory, 2<<20), "its memory is not"},
		"a bit of the state":            {flip(State, 4), "its state is not"},
		"a bit of the disk":             {flip(Disk, 0), "its disk is not"},
		"a bit of the record":           {flip("made", 0), "read "},
		"memory cut short":              {cut(Memory, 1<<20), "its memory is not"},
		"memory that is longer":         {cut(Memory, 5<<20), "its memory is not"},
		"state cut short":               {cut(State, 2), "its state is not"},
		"no memory":                     {gone(Memory), "no such file"},
		"no state":                      {gone(State), "no such file"},
		"no disk":                       {gone(Disk), "no such file"},
		"no record":                     {gone("made"), "no such file"},
		"memory that others can read":   {func(dir string) error { return os.Chmod(filepath.Join(dir, Memory), 0o644) }, "lets others in"},
		"state that others can write":   {func(dir string) error { return os.Chmod(filepath.Join(dir, State), 0o622) }, "lets others in"},
		"a directory open to others":    {func(dir string) error { return os.Chmod(dir, 0o755) }, "lets others in"},
		"a link in place of the state":  {func(dir string) error { return relink(filepath.Join(dir, State)) }, "symbolic link"},
		"a pipe in place of the disk":   {func(dir string) error { return repipe(filepath.Join(dir, Disk)) }, "is no file"},
		"a pipe in place of the record": {func(dir string) error { return repipe(filepath.Join(dir, "made")) }, "is no file"},
		"a file in its place":           {func(dir string) error { os.RemoveAll(dir); return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"another user's": {func(dir string) error {
			if os.Geteuid() != 0 {
				return errors.ErrUnsupported
			}
			return os.Chown(filepath.Join(dir, Disk), 1234, 1234)
		}, "owned by user 1234"},
	} {
		t.Run(what, func(t *testing.T) {
			s := testStore(t)
			key := publish(t, s, someInputs)
			if f, err := s.Find(key); err != nil {
				t.Fatalf("control: %v", err)
			} else {
				f.Close()
			}
			if err := c.damage(filepath.Join(s.dir, key)); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			if f, err := s.Find(key); err == nil {
				f.Close()
				t.Fatal("it was found")
			} else if !strings.Contains(err.Error(), c.want) || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v, want %q", err, c.want)
			}
			publish(t, s, someInputs)
			if f, err := s.Find(key); err != nil {
				t.Errorf("a new one in its place: %v", err)
			} else {
				f.Close()
			}
		})
	}
}

func repipe(path string) error {
	return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600))
}

func relink(path string) error {
	if err := os.Rename(path, path+"2"); err != nil {
		return err
	}
	return os.Symlink(path+"2", path)
}

// TestReadOnce: the memory is read again only where it may have been changed, or
// the host has started again since.
func TestReadOnce(t *testing.T) {
	s := testStore(t)
	key := publish(t, s, someInputs)
	dir := filepath.Join(s.dir, key)
	// The record claims another memory: who reads it finds it changed.
	var m made
	if err := readRecord(filepath.Join(dir, "made"), &m); err != nil {
		t.Fatal(err)
	}
	m.Parts[Memory] = part{Size: m.Parts[Memory].Size, SHA256: "other"}
	if err := writeRecord(filepath.Join(dir, "made"), m); err != nil {
		t.Fatal(err)
	}
	f, err := s.Find(key)
	if err != nil {
		t.Fatalf("it was read although nothing has changed: %v", err)
	}
	f.Close()
	var is identity
	if err := readRecord(filepath.Join(dir, "checked"), &is); err != nil {
		t.Fatal(err)
	}
	is.Boot = "before"
	if err := writeRecord(filepath.Join(dir, "checked"), is); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Find(key); err == nil {
		f.Close()
		t.Error("it was not read though the host has started again")
	}
}

// TestLock: one template is made at a time, and a wait can be given up.
func TestLock(t *testing.T) {
	s := testStore(t)
	first, err := s.Lock(context.Background(), someInputs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Lock(ctx, someInputs); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is given up: %v", err)
	}
	other, err := s.Lock(context.Background(), []Input{{Name: "other"}})
	if err != nil {
		t.Fatalf("control: another machine: %v", err)
	}
	other.Discard()

	var second *Draft
	var wait sync.WaitGroup
	wait.Go(func() { second, err = s.Lock(context.Background(), someInputs) })
	fill(t, first)
	if err := first.Publish(); err != nil {
		t.Fatal(err)
	}
	first.Discard()
	wait.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Discard()
	if f, err := s.Find(Key(someInputs)); err != nil {
		t.Errorf("who waited does not find it: %v", err)
	} else {
		f.Close()
	}
}

// TestPublishFails: a template that lacks something gets no name.
func TestPublishFails(t *testing.T) {
	s := testStore(t)
	d, err := s.Lock(context.Background(), someInputs)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, d)
	os.Remove(d.Path(State))
	if err := d.Publish(); err == nil {
		t.Error("no error")
	}
	d.Discard()
	if _, err := s.Find(Key(someInputs)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found: %v", err)
	}
	if got := s.named(".new", ""); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// TestDraftRefused: where none can be made, what was made of it is gone before the
// reason is noted, which takes room too, and whoever waited finds the reason.
func TestDraftRefused(t *testing.T) {
	s := testStore(t)
	d, err := s.Lock(context.Background(), someInputs)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, d)
	d.Refuse("no room")
	if _, err := os.Stat(d.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was made is there: %v", err)
	}
	if why := s.Refused(Key(someInputs)); why != "no room" {
		t.Errorf("noted: %q", why)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Lock(ctx, someInputs); !errors.Is(err, context.Canceled) {
		t.Errorf("the lock is free before the end: %v", err)
	}
	d.Discard()
}
