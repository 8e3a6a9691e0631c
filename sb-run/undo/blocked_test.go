package undo

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBlocked: what was recorded and is now something that cannot be is not lost, and it
// is not said that all is as it was; once that is removed, it is put back.
func TestBlocked(t *testing.T) {
	s, tree := stage(t)
	names := []string{"fifo", "large", "socket", "src", "node_modules", "new\nline\x1b[2J"}
	for _, name := range names {
		if name != "src" {
			write(t, tree+"/"+name, "mine")
		}
	}
	write(t, tree+"/src/main", "mine")
	write(t, tree+"/other", "mine")
	r := record(t, s, tree)
	for _, name := range append(names, "other") {
		must(t, os.RemoveAll(tree+"/"+name))
	}
	must(t, unix.Mkfifo(tree+"/fifo", 0o600))
	must(t, unix.Mkfifo(tree+"/src", 0o600))
	must(t, unix.Mkfifo(tree+"/"+names[5], 0o600))
	l, err := net.Listen("unix", tree+"/socket")
	must(t, err)
	defer l.Close()
	must(t, os.WriteFile(tree+"/large", nil, 0o600))
	must(t, os.Truncate(tree+"/large", plain.Largest+1))
	write(t, tree+"/node_modules/x", "theirs")
	must(t, unix.Mkfifo(tree+"/new", 0o600)) // in no record, and in nobody's way
	left := restore(t, s, r, true)
	if len(left) != len(names) {
		t.Errorf("left: %q", left)
	}
	for _, l := range left {
		if !strings.Contains(l.Why, "remove it") {
			t.Errorf("%q", l)
		}
	}
	if text, _ := os.ReadFile(tree + "/other"); string(text) != "mine" {
		t.Errorf("other holds %q", text)
	}
	if p := MakePlan(r, record(t, s, tree), []string{"src/main"}, false); len(p.Blocked) != 1 || p.Blocked[0].Path != "src" || len(p.Unknown) != 0 {
		t.Errorf("of src/main: %+v", p)
	}
	if p := MakePlan(r, record(t, s, tree), []string{"other", "new"}, false); len(p.Blocked) != 0 || len(p.Unknown) != 1 {
		t.Errorf("of others: %+v", p)
	}
	if _, unknown := Diff(r, record(t, s, tree)); len(unknown) != len(names)+1 {
		t.Errorf("not known: %+v", unknown)
	}
	for _, name := range names {
		must(t, os.RemoveAll(tree+"/"+name))
	}
	if left := restore(t, s, r, true); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if text, _ := os.ReadFile(tree + "/src/main"); string(text) != "mine" {
		t.Errorf("src/main holds %q", text)
	}
}

// TestHoles: what a guest makes of holes takes no room in the store, nor does it when it
// is put back, and is what it was.
func TestHoles(t *testing.T) {
	s, tree := stage(t)
	rules := Rules{Largest: 1 << 30}
	const n, size = 8, 16 << 20
	for i := range n {
		f, err := os.Create(fmt.Sprintf("%s/%d", tree, i))
		must(t, err)
		_, err = f.WriteAt([]byte(fmt.Sprint(i)), size/n*int64(i))
		must(t, err)
		must(t, f.Truncate(size))
		must(t, f.Close())
	}
	must(t, os.WriteFile(tree+"/small", make([]byte, small), 0o600))
	r, err := s.Record(t.Context(), tree, "test", rules)
	must(t, err)
	if got := blocks(t, s.path("objects")); got > 4<<20 {
		t.Errorf("the store has %d bytes of it", got)
	}
	if damaged, err := s.Verify(t.Context(), r); err != nil || len(damaged) > 0 {
		t.Errorf("%v %v", damaged, err)
	}
	must(t, os.Remove(tree+"/7"))
	must(t, os.Remove(tree+"/small"))
	now, err := s.Record(context.Background(), tree, "test", rules)
	must(t, err)
	left, err := s.Restore(t.Context(), MakePlan(r, now, nil, true))
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	again, err := s.Scan(t.Context(), tree, rules)
	must(t, err)
	if changes, _ := Diff(r, again); len(changes) > 0 || blocks(t, tree) > 4<<20 {
		t.Errorf("%v; the tree has %d bytes", changes, blocks(t, tree))
	}
}

// blocks is what the files of a directory take on the disk, in bytes.
func blocks(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		var st unix.Stat_t
		must(t, unix.Lstat(dir+"/"+e.Name(), &st))
		if n += st.Blocks * 512; e.IsDir() {
			n += blocks(t, dir+"/"+e.Name())
		}
	}
	return n
}

// TestManyAttributes: a file with more attributes than a record may have is listed, and
// the record can be read.
func TestManyAttributes(t *testing.T) {
	s, tree := stage(t)
	// In memory there is room for many, if the kernel has any there (Linux 6.6).
	if shm, err := os.MkdirTemp("/dev/shm", "undo-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(shm) })
		if unix.Setxattr(shm, "user.a", nil, 0) == nil {
			tree = shm
		}
	}
	write(t, tree+"/few", "x")
	write(t, tree+"/many", "x")
	must(t, unix.Setxattr(tree+"/few", "user.a", []byte("x"), 0))
	for i := range maxAttributes + 1 {
		if err := unix.Setxattr(tree+"/many", fmt.Sprint("user.", i), nil, 0); err == unix.ENOSPC {
			t.Skip("SKIPPED: this file system has no room for so many")
		} else {
			must(t, err)
		}
	}
	r := record(t, s, tree)
	if len(r.Skipped) != 1 || r.Skipped[0].Path != "many" || !r.Has("few") {
		t.Errorf("skipped: %+v", r.Skipped)
	}
}

// TestLimitKeepsRestored: what a guest left, however much, does not push out the record
// that is restored; another one goes, and holes do not count.
func TestLimitKeepsRestored(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/a", strings.Repeat("first", 1000))
	other := record(t, s, tree)
	write(t, tree+"/a", "mine")
	r := record(t, s, tree)
	must(t, os.WriteFile(tree+"/hole", nil, 0o600))
	must(t, os.Truncate(tree+"/hole", plain.Largest))
	now := record(t, s, tree)
	now.Added = 1 // which is not in what is read
	if p, err := s.Limit(now, Limits{Keep: 10, Size: 1 << 20}, r.Name); err != nil || len(p.Records) > 0 {
		t.Errorf("of a hole: %+v, %v", p, err)
	}
	write(t, tree+"/much", strings.Repeat("x", 1<<20))
	now = record(t, s, tree)
	now.Added = 1
	p, err := s.Limit(now, Limits{Keep: 10, Size: 1 << 16}, r.Name)
	if err != nil || len(p.Records) != 2 || p.Records[0] != other.Name {
		t.Errorf("removed %v, %v", p.Records, err)
	}
	if _, err := s.Load(r.Name); err != nil {
		t.Error(err)
	}
}
