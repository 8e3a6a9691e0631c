package undo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func objects(t *testing.T, s *Store) (paths []string) {
	t.Helper()
	must(t, s.objects(func(_ Digest, path string) error { paths = append(paths, path); return nil }))
	return paths
}

// TestStoreIsApart: no file of the store is one of the tree's, each is the user's
// alone, and what is written in place into the tree changes none.
func TestStoreIsApart(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/small", "small")
	write(t, tree+"/large", strings.Repeat("large", small/4))
	r := record(t, s, tree)
	for _, name := range []string{"small", "large"} {
		f, err := os.OpenFile(filepath.Join(tree, name), os.O_WRONLY, 0)
		must(t, err)
		f.WriteString("changed in place")
		f.Close()
	}
	if damaged, err := s.Verify(t.Context(), r); len(damaged) > 0 || err != nil {
		t.Error(damaged, err)
	}
	all := objects(t, s)
	if len(all) != 2 {
		t.Errorf("%d objects", len(all))
	}
	for _, path := range all {
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		if st.Nlink != 1 || st.Mode != unix.S_IFREG|0o600 {
			t.Errorf("%s: %d names, mode %o", path, st.Nlink, st.Mode)
		}
	}
}

// TestDamage: bytes that are missing, or others, are found and never put back.
func TestDamage(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/a", "bytes of a")
	write(t, tree+"/b", "bytes of b")
	write(t, tree+"/c", "bytes of c")
	r := record(t, s, tree)
	must(t, os.Remove(s.object(r.byPath()["a"].Digest)))
	must(t, os.WriteFile(s.object(r.byPath()["b"].Digest), []byte("bytes of X"), 0o600))
	damaged, err := s.Verify(t.Context(), r)
	if err != nil || len(damaged) != 2 || damaged[0].Path != "a" || damaged[1].Path != "b" {
		t.Errorf("damaged: %v, %v", damaged, err)
	}
	must(t, os.RemoveAll(tree))
	must(t, os.Mkdir(tree, 0o755))
	now, err := s.Scan(t.Context(), tree, plain)
	must(t, err)
	left, err := s.Restore(t.Context(), MakePlan(r, now, nil, true))
	if err != nil || len(left) != 2 || !strings.Contains(left[1].Why, "other bytes than it had") {
		t.Errorf("left: %v, %v", left, err)
	}
	if names, _ := os.ReadDir(tree); len(names) != 1 || names[0].Name() != "c" {
		t.Errorf("the tree has %v", names)
	}
}

// TestKilled: what a killed process was writing is cleared away by the next one
// that finds the store unused, with the bytes that are no record's.
func TestKilled(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/a", "kept")
	r := record(t, s, tree)
	f, err := s.temp()
	must(t, err)
	f.WriteString("half a record")
	f.Close()
	_, err = s.put(Digest{1}, []byte("an orphan"))
	must(t, err)

	second, err := openStore(s.dir) // beside the first, which may be writing it
	must(t, err)
	if _, err := os.Stat(f.Name()); err != nil || len(objects(t, s)) != 2 {
		t.Errorf("it was cleared away while the store is in use: %v", err)
	}
	second.Close()
	s.Close()
	third, err := openStore(s.dir)
	must(t, err)
	defer third.Close()
	if left, _ := os.ReadDir(s.path("tmp")); len(left) > 0 || len(objects(t, third)) != 1 {
		t.Errorf("left: %v, %d objects", left, len(objects(t, third)))
	}
	if damaged, err := third.Verify(t.Context(), r); len(damaged) > 0 || err != nil {
		t.Error(damaged, err)
	}
}

// TestFailedRecord: a record that is stopped leaves nothing.
func TestFailedRecord(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/a", "text")
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errors.New("told to end"))
	if _, err := s.Record(stopped, tree, "test", plain); err == nil || err.Error() != "record "+tree+": told to end" {
		t.Errorf("stopped: %v", err)
	}
	if _, err := s.Record(t.Context(), tree+"/none", "test", plain); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no tree: %v", err)
	}
	left, _ := os.ReadDir(s.path("tmp"))
	if all := objects(t, s); len(left) > 0 || len(all) > 0 {
		t.Errorf("left: %v %v", left, all)
	}
	record(t, s, tree)
}

// TestTwoAtOnce: two records of one tree at a time are both whole.
func TestTwoAtOnce(t *testing.T) {
	s, tree := stage(t)
	for i := range 200 {
		write(t, fmt.Sprintf("%s/%d/%d", tree, i%7, i), fmt.Sprint("text ", i%50))
	}
	var all sync.WaitGroup
	made := make([]*Record, 4)
	for i := range made {
		all.Go(func() {
			own, err := openStore(s.dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			if made[i], err = own.Record(t.Context(), tree, "test", plain); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	names := map[string]bool{}
	for _, r := range made {
		if r == nil {
			continue
		}
		names[r.Name] = true
		if damaged, err := s.Verify(t.Context(), r); r.Files != 200 || len(damaged) > 0 || err != nil {
			t.Errorf("%s: %d files, damaged: %v, %v", r.Name, r.Files, damaged, err)
		}
	}
	if list, err := s.List(); len(names) != 4 || len(list) != 4 || err != nil {
		t.Errorf("%d names, %d listed, %v", len(names), len(list), err)
	}
}

// TestPrune: with a record go the bytes that no other has, and no others.
func TestPrune(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/same", "in all")
	var made []*Record
	for i := range 4 {
		write(t, tree+"/other", fmt.Sprint("only in ", i))
		made = append(made, record(t, s, tree))
	}
	if n := len(objects(t, s)); n != 5 {
		t.Fatalf("%d objects", n)
	}
	p, err := s.Remove([]string{made[1].Name})
	if err != nil || len(objects(t, s)) != 4 || p.Freed != int64(len("only in 1")) {
		t.Errorf("%+v, %v, %d objects", p, err, len(objects(t, s)))
	}
	if _, err := s.Remove([]string{"../lock"}); err == nil {
		t.Error("a name that is a path was removed")
	}
	p, err = s.Prune(func(all []Header) []Header { return Beyond(all, 2) })
	if err != nil || !slices.Equal(p.Records, []string{made[0].Name}) {
		t.Errorf("%+v, %v", p, err)
	}
	restored := Header{Name: "r", Tree: made[3].Tree, Of: BeforeRestore}
	if old := Beyond([]Header{restored, made[3].Header, restored, made[2].Header}, 1); len(old) != 2 || old[0].Of != BeforeRestore || old[1].Name != made[2].Name {
		t.Errorf("of runs and of restores: %v", old)
	}
	for _, r := range made[2:] {
		if damaged, err := s.Verify(t.Context(), r); len(damaged) > 0 || err != nil {
			t.Error(damaged, err)
		}
	}
	all, _ := s.List()
	if old := Older(all, time.Now().Add(-time.Hour)); len(old) != 0 {
		t.Errorf("old: %v", old)
	}
	if old := Older(all, time.Now().Add(time.Hour)); len(old) != 2 {
		t.Errorf("old: %v", old)
	}
}

// TestLimit: the oldest records go when there are too many of a tree, or they are
// too large; the one that was just made stays.
func TestLimit(t *testing.T) {
	s, tree := stage(t)
	var last *Record
	for i := range 4 {
		write(t, tree+"/file", strings.Repeat(fmt.Sprint(i), 1000))
		last = record(t, s, tree)
	}
	last.Added = 0
	if p, err := s.Limit(last, Limits{Keep: 3, Size: 1 << 20}); err != nil || len(p.Records) != 1 {
		t.Errorf("by number: %+v, %v", p, err)
	}
	last.Added = 1000
	if p, err := s.Limit(last, Limits{Keep: 3, Size: 2000}); err != nil || len(p.Records) != 1 || p.Used != 2000 {
		t.Errorf("by size: %+v, %v", p, err)
	}
	p, err := s.Limit(last, Limits{Keep: 3, Size: 1})
	if all, _ := s.List(); err != nil || p.Used != 1000 || len(all) != 1 || all[0].Name != last.Name {
		t.Errorf("too small: %+v, %v, left %v", p, err, all)
	}
}

// TestUnreadableRecord: one that was changed is named, with what to do; its bytes
// stay until it is removed, and others can be used.
func TestUnreadableRecord(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/a", "one")
	bad := record(t, s, tree)
	write(t, tree+"/a", "two")
	good := record(t, s, tree)
	text, err := os.ReadFile(s.path("records", bad.Name))
	must(t, err)
	must(t, os.WriteFile(s.path("records", bad.Name), bytes.Replace(text, []byte(`"a"`), []byte(`"b"`), 1), 0o600))
	if _, err := s.Load(bad.Name); err == nil || !strings.Contains(err.Error(), "its digest is another") {
		t.Errorf("load: %v", err)
	}
	if _, err := s.Prune(func([]Header) []Header { return nil }); err == nil || len(objects(t, s)) != 2 {
		t.Errorf("prune: %v, %d objects", err, len(objects(t, s)))
	}
	if _, err := s.Load(good.Name); err != nil {
		t.Error(err)
	}
	if _, err := s.Remove([]string{bad.Name}); err != nil || len(objects(t, s)) != 1 {
		t.Errorf("remove: %v, %d objects", err, len(objects(t, s)))
	}
}
