package template

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestLeftOfTheSame: what a maker that was killed left is removed by the next one of
// the same, which holds the lock that the dead one had.
func TestLeftOfTheSame(t *testing.T) {
	s := testStore(t)
	dead, err := s.Lock(context.Background(), someInputs)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, dead)
	dead.lock.Close()
	alive, err := s.Lock(context.Background(), []Input{{Name: "alive"}})
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Discard()
	publish(t, s, someInputs)
	if _, err := os.Stat(dead.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead one's is there: %v", err)
	}
	if _, err := os.Stat(alive.dir); err != nil {
		t.Errorf("control: what is being made is gone: %v", err)
	}
}

// TestLeft: what a maker that was killed left is removed by the next one, what is
// being made is not, and half of a template is none.
func TestLeft(t *testing.T) {
	s := testStore(t)
	dead, err := s.Lock(context.Background(), someInputs)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, dead)
	dead.lock.Close() // as its process's end does
	alive, err := s.Lock(context.Background(), []Input{{Name: "alive"}})
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Discard()
	if _, err := s.Find(Key(someInputs)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half of a template: %v", err)
	}
	publish(t, s, []Input{{Name: "next"}})
	if _, err := os.Stat(dead.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead one's is there: %v", err)
	}
	if _, err := os.Stat(alive.dir); err != nil {
		t.Errorf("control: what is being made is gone: %v", err)
	}
}

// TestNotNoted: a template is as good where it cannot be noted that it was looked at.
func TestNotNoted(t *testing.T) {
	s := testStore(t)
	key := publish(t, s, someInputs)
	in := filepath.Join(s.dir, key, "checked")
	if err := errors.Join(os.Remove(in), os.MkdirAll(filepath.Join(in, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := s.Find(key)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if left, _ := os.ReadDir(filepath.Dir(in)); len(left) != 5 {
		t.Errorf("left: %v", left)
	}
	if err := flipBit(filepath.Join(s.dir, key, Memory)); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Find(key); err == nil {
		f.Close()
		t.Error("control: a damaged one was found")
	}
}

// flipBit changes the first bit of a file.
func flipBit(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], 0)
	b[0] ^= 1
	_, werr := f.WriteAt(b[:], 0)
	return errors.Join(err, werr)
}
