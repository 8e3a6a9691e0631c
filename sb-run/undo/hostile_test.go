package undo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPlantedLinks: a link in the place of a directory is replaced, not followed,
// by a restore of what was in that directory.
func TestPlantedLinks(t *testing.T) {
	s, tree := stage(t)
	outside := t.TempDir()
	write(t, outside+"/a", "theirs")
	write(t, tree+"/src/a", "ours")
	write(t, tree+"/src/sub/b", "ours")
	write(t, tree+"/src/c", "ours")
	r := record(t, s, tree)
	must(t, os.RemoveAll(tree+"/src"))
	must(t, os.Symlink(outside, tree+"/src"))
	if left := restore(t, s, r, false, "src/a", "src/sub/b"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for path, want := range map[string]string{outside + "/a": "theirs", tree + "/src/a": "ours", tree + "/src/sub/b": "ours"} {
		if text, err := os.ReadFile(path); string(text) != want {
			t.Errorf("%s holds %q, want %q; %v", path, text, want, err)
		}
	}
	if _, err := os.Lstat(tree + "/src/c"); err == nil {
		t.Error("what was not asked for was restored too")
	}
	if _, err := os.Lstat(outside + "/sub"); err == nil {
		t.Error("something was made outside")
	}
}

// TestChangedMeanwhile: what changes between the record of now and the restore is
// left, since nothing has it; the rest is put back.
func TestChangedMeanwhile(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/a", "a then")
	write(t, tree+"/b", "b then")
	write(t, tree+"/gone", "then")
	r := record(t, s, tree)
	write(t, tree+"/a", "a, the agent's")
	write(t, tree+"/b", "b, the agent's")
	must(t, os.Remove(tree+"/gone"))
	write(t, tree+"/new", "the agent's")
	write(t, tree+"/new2", "the agent's")
	plan := MakePlan(r, record(t, s, tree), nil, true)
	write(t, tree+"/b", "b, the user's")
	write(t, tree+"/new", "the user's, longer")
	write(t, tree+"/gone", "the user's")
	left, err := s.Restore(t.Context(), plan)
	must(t, err)
	if fmt.Sprint(left) != "[{new changed meanwhile} {b changed meanwhile} {gone changed meanwhile}]" {
		t.Errorf("left: %v", left)
	}
	for name, want := range map[string]string{"a": "a then", "b": "b, the user's", "new": "the user's, longer", "gone": "the user's", "new2": ""} {
		if text, _ := os.ReadFile(filepath.Join(tree, name)); string(text) != want {
			t.Errorf("%s holds %q, want %q", name, text, want)
		}
	}
	if hidden, _ := filepath.Glob(tree + "/.sb-undo-*"); len(hidden) > 0 {
		t.Errorf("left: %v", hidden)
	}
}

// TestNamesOfOneFile: two names of one file are put back in place, and as two files
// that they were.
func TestNamesOfOneFile(t *testing.T) {
	s, tree := stage(t)
	for _, name := range []string{"a", "b", "p"} {
		write(t, tree+"/"+name, "same")
	}
	must(t, os.Link(tree+"/p", tree+"/q"))
	old := time.Unix(1e9, 7)
	for _, name := range []string{"a", "b", "p"} {
		must(t, os.Chtimes(tree+"/"+name, old, old))
	}
	before := look(t, tree)
	r := record(t, s, tree)
	must(t, os.Remove(tree+"/b"))
	must(t, os.Link(tree+"/a", tree+"/b"))
	must(t, os.Chtimes(tree+"/a", time.Time{}, old.Add(time.Hour)))
	must(t, os.Chtimes(tree+"/p", time.Time{}, old.Add(time.Hour)))
	must(t, os.Chmod(tree+"/p", 0o600))
	if left := restore(t, s, r, true); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if after := look(t, tree); after != before {
		t.Errorf("restored\n%s\nwant\n%s", after, before)
	}
}

// TestIgnoredInTheWay: a folder that is ignored is never removed with the new one
// around it.
func TestIgnoredInTheWay(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/x", "x")
	r := record(t, s, tree)
	write(t, tree+"/app/main", "new")
	write(t, tree+"/app/node_modules/m", "new")
	left := restore(t, s, r, true)
	if len(left) != 1 || left[0].Path != "app" || !strings.Contains(left[0].Why, "not to be removed") {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(tree + "/app/node_modules/m"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(tree + "/app/main"); err == nil {
		t.Error("what is new was not removed")
	}
}

// TestDeepTree: a tree as deep as a path may be is recorded and put back; what is
// deeper is listed.
func TestDeepTree(t *testing.T) {
	s, tree := stage(t)
	fd, err := openTree(tree)
	must(t, err)
	depth := 0
	for ; depth < 2100; depth++ {
		if depth == 2000 {
			f, err := openAt(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
			must(t, err)
			unix.Close(f)
		}
		must(t, unix.Mkdirat(fd, "d", 0o700))
		next, err := openDirAt(fd, "d")
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	r := record(t, s, tree)
	if len(r.Skipped) != 1 || r.Files != 1 || !strings.Contains(r.Skipped[0].Why, "too long") {
		t.Fatalf("%d files, skipped: %.200v", r.Files, r.Skipped)
	}
	file := strings.Repeat("d/", 2000) + "file"
	at, err := openTree(tree)
	must(t, err)
	defer unix.Close(at)
	dir, err := walk(at, parent(file))
	must(t, err)
	defer unix.Close(dir)
	must(t, unix.Unlinkat(dir, "file", 0))
	if left := restore(t, s, r, false, file); len(left) > 0 {
		t.Errorf("left: %.200v", left)
	}
	if _, err := statAt(dir, "file"); err != nil {
		t.Error(err)
	}
	must(t, os.RemoveAll(tree)) // testing's own cannot
}
