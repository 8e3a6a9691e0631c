package undo

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var plain = Rules{Ignore: []string{"node_modules"}, Largest: 4 << 20}

// stage is a tree and a store of its own.
func stage(t *testing.T) (s *Store, tree string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree = filepath.Join(top, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if s, err = openStore(filepath.Join(top, "undo")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, tree
}

func record(t *testing.T, s *Store, tree string) *Record {
	t.Helper()
	r, err := s.Record(t.Context(), tree, "test", plain)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Load(r.Name)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(r.Entries, again.Entries, func(a, b Entry) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) || !slices.Equal(r.Skipped, again.Skipped) {
		t.Fatal("what is read is not what was written")
	}
	return again
}

// restore puts back and returns what was left.
func restore(t *testing.T, s *Store, r *Record, remove bool, paths ...string) []Left {
	t.Helper()
	left, err := s.Restore(t.Context(), MakePlan(r, record(t, s, r.Tree), paths, remove))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// look is a tree as another reader finds it: a line for each path with all that is
// to come back.
func look(t *testing.T, tree string) string {
	t.Helper()
	var b strings.Builder
	links := map[uint64]string{}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %o %d.%09d", path[len(tree):], st.Mode, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if links[st.Ino] == "" {
				links[st.Ino] = path[len(tree):]
			}
			value := make([]byte, 100)
			n, _ := unix.Getxattr(path, "user.x", value)
			fmt.Fprintf(&b, " %x as %q %q", text, links[st.Ino], value[:max(n, 0)])
		case unix.S_IFLNK:
			target, _ := os.Readlink(path)
			fmt.Fprintf(&b, " -> %q", target)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRestoreIsExact: of a random tree with random changes, restoring all gives
// back every byte, permission, time, link and attribute.
func TestRestoreIsExact(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(60) {
		g := &gardener{t: t, rand: rand.New(rand.NewPCG(seed, i))}
		s, tree := stage(t)
		g.tree = tree
		g.grow(60)
		g.settle()
		before := look(t, tree)
		r := record(t, s, tree)
		if now := look(t, tree); now != before {
			t.Fatalf("seed %d/%d: recording changed the tree", seed, i)
		}
		g.wreck(40)
		wrecked := look(t, tree)
		now := record(t, s, tree)
		if left, err := s.Restore(t.Context(), MakePlan(r, now, nil, true)); len(left) > 0 || err != nil {
			t.Fatalf("seed %d/%d: left: %v, %v", seed, i, left, err)
		}
		if after := look(t, tree); after != before {
			t.Fatalf("seed %d/%d: restored\n%s\nwant\n%s\nit was\n%s", seed, i, after, before, wrecked)
		}
		// And back to what it was before that.
		if left := restore(t, s, now, true); len(left) > 0 {
			t.Fatalf("seed %d/%d: back: left: %v", seed, i, left)
		}
		if after := look(t, tree); after != wrecked {
			t.Fatalf("seed %d/%d: back to\n%s\nwant\n%s", seed, i, after, wrecked)
		}
		if changes, _ := Diff(now, record(t, s, tree)); len(changes) > 0 {
			t.Fatalf("seed %d/%d: what is equal differs: %v", seed, i, changes)
		}
	}
}

// gardener makes and changes random trees.
type gardener struct {
	t    *testing.T
	rand *rand.Rand
	tree string
}

func (g *gardener) name() string {
	names := []string{"a", "b", "c", "a b", "é", "\xff\xfe", "new\nline", "-", ".git", `"`, "a.txt", "~"}
	return names[g.rand.IntN(len(names))]
}

// paths are those of the tree, the tree itself first.
func (g *gardener) paths(kind fs.FileMode) (all []string) {
	filepath.WalkDir(g.tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == kind {
			all = append(all, path)
		}
		return nil
	})
	return all
}

func (g *gardener) pick(kind fs.FileMode) string {
	all := g.paths(kind)
	if len(all) == 0 {
		return g.tree
	}
	return all[g.rand.IntN(len(all))]
}

func (g *gardener) text() []byte {
	b := make([]byte, []int{0, 1, 10, 5000, small + 10}[g.rand.IntN(100)/24])
	for i := range min(len(b), 100) {
		b[i] = byte(g.rand.Uint32())
	}
	return b
}

func (g *gardener) grow(n int) {
	for range n {
		path := filepath.Join(g.pick(fs.ModeDir), g.name())
		switch g.rand.IntN(6) {
		case 0, 1:
			os.Mkdir(path, 0o755)
		case 2, 3:
			os.WriteFile(path, g.text(), fs.FileMode(0o400|g.rand.IntN(0o400)))
		case 4:
			os.Symlink("to "+g.name(), path)
		case 5:
			if from := g.pick(0); from != g.tree {
				os.Link(from, path)
			}
		}
	}
}

// settle gives files times and attributes that are none of now.
func (g *gardener) settle() {
	for _, path := range g.paths(0) {
		when := time.Unix(1e9+int64(g.rand.IntN(1e6)), int64(g.rand.IntN(1e9)))
		os.Chtimes(path, when, when)
		if g.rand.IntN(4) == 0 {
			unix.Setxattr(path, "user.x", []byte{0, 255, byte(g.rand.Uint32())}, 0)
		}
	}
	for _, path := range g.paths(fs.ModeDir) {
		os.Chmod(path, fs.FileMode(0o700|g.rand.IntN(0o100)))
		when := time.Unix(1e9, int64(g.rand.IntN(1e9)))
		os.Chtimes(path, when, when)
	}
}

func (g *gardener) wreck(n int) {
	for range n {
		path := g.pick([]fs.FileMode{0, fs.ModeDir, fs.ModeSymlink}[g.rand.IntN(3)])
		if path == g.tree {
			continue
		}
		switch g.rand.IntN(7) {
		case 0:
			os.RemoveAll(path)
		case 1:
			os.Rename(path, filepath.Join(g.pick(fs.ModeDir), g.name()))
		case 2:
			os.Chmod(path, fs.FileMode(0o700|g.rand.IntN(0o100)))
		case 3:
			os.RemoveAll(path)
			os.Symlink("/etc", path)
		case 4:
			os.RemoveAll(path)
			write(g.t, path+"/"+g.name()+"/x", "new")
		case 5: // in place, for all names of the file
			if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
				f.Write(g.text())
				f.Close()
			}
		default:
			g.grow(2)
		}
	}
}

// TestUnchangedIsNotRead: a file that has its identity, size and times is taken
// from the record before, one that changed so lately that they cannot tell is read.
func TestUnchangedIsNotRead(t *testing.T) {
	s, tree := stage(t)
	for i := range 10 {
		write(t, filepath.Join(tree, fmt.Sprint(i)), fmt.Sprint("text ", i))
	}
	if r := record(t, s, tree); r.Files != 10 {
		t.Fatalf("%d files", r.Files)
	}
	take := func(want int) *Record {
		t.Helper()
		r, err := s.Record(t.Context(), tree, "test", plain)
		if err != nil || r.Read != want {
			t.Fatalf("%d files were read, want %d; %v", r.Read, want, err)
		}
		return r
	}
	r := take(10) // they are as new as the record
	// As if it were made later.
	later := func() {
		r.Started = time.Now().Add(time.Minute)
		marker, err := s.temp()
		must(t, err)
		must(t, s.publish(r, marker))
		marker.Close()
		must(t, os.Remove(marker.Name()))
	}
	later()
	take(0)
	info, err := os.Stat(filepath.Join(tree, "3"))
	must(t, err)
	write(t, filepath.Join(tree, "3"), "text X") // of the same size
	must(t, os.Chtimes(filepath.Join(tree, "3"), info.ModTime(), info.ModTime()))
	if r := take(1); r.byPath()["3"].Size != 6 || r.byPath()["3"].Digest == r.byPath()["2"].Digest {
		t.Error("the change was not seen")
	}
	// Bytes that the store has lost are read again.
	must(t, os.Truncate(s.object(r.byPath()["5"].Digest), 1))
	take(2)
}

// TestSkipped: what is not recorded is listed with its reason, and left alone by
// a restore of all; the files beside it are recorded.
func TestSkipped(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/file", "x")
	write(t, tree+"/node_modules/m/file", "x")
	write(t, tree+"/a/node_modules", "a file of that name is none")
	must(t, unix.Mkfifo(tree+"/fifo", 0o600))
	large, err := os.Create(tree + "/large")
	must(t, err)
	must(t, large.Truncate(plain.Largest+1))
	must(t, large.Close())
	must(t, os.WriteFile(tree+"/exact", make([]byte, plain.Largest), 0o600))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	wd, _ := os.Getwd()
	must(t, os.Chdir(tree)) // the path of a socket must be short
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))
	must(t, os.Chdir(wd))
	r := record(t, s, tree)
	var got []string
	for _, k := range r.Skipped {
		got = append(got, k.Path+": "+k.Why)
	}
	want := "fifo: a fifo, large: larger than 4194304 bytes, node_modules: ignored by rule, socket: a socket"
	if strings.Join(got, ", ") != want || r.Missing != 3 || r.Ignored != 1 || r.Files != 3 {
		t.Errorf("skipped %q, %d files; want %q", got, r.Files, want)
	}
	must(t, os.Remove(tree+"/fifo"))
	write(t, tree+"/node_modules/new", "x")
	write(t, tree+"/late", "x")
	must(t, unix.Mkfifo(tree+"/fifo2", 0o600))
	if left := restore(t, s, r, true); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, name := range []string{"file", "large", "socket", "node_modules/new", "fifo2"} {
		if _, err := os.Lstat(filepath.Join(tree, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(tree + "/late"); err == nil {
		t.Error("what is new was not removed")
	}
}

// TestUnreadable: as an ordinary user, what cannot be read is listed.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything; testscripts/testdata/run_undo_user.txtar has this as an ordinary user")
	}
	s, tree := stage(t)
	write(t, tree+"/closed", "x")
	must(t, os.Chmod(tree+"/closed", 0))
	write(t, tree+"/dir/x", "x")
	must(t, os.Chmod(tree+"/dir", 0))
	defer os.Chmod(tree+"/dir", 0o700)
	if r := record(t, s, tree); r.Missing != 2 || r.Skipped[0].Why != "permission denied" {
		t.Errorf("skipped: %v", r.Skipped)
	}
}

// TestChangesWhileRecorded: a file that never stands still is listed, and not
// recorded half. One that is written once more is.
func TestChangesWhileRecorded(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/still", "x")
	must(t, os.WriteFile(tree+"/log", make([]byte, 3<<20), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.OpenFile(tree+"/log", os.O_WRONLY, 0)
		if err != nil {
			return
		}
		defer f.Close()
		for n := 0; ctx.Err() == nil; n++ {
			f.WriteAt([]byte{byte(n)}, int64(n%100))
			f.Truncate(3<<20 + int64(n%100))
			if n == 0 {
				close(started)
			}
		}
	}()
	<-started
	r := record(t, s, tree)
	stop()
	<-done
	if r.byPath()["still"] == nil {
		t.Error("the other file was not recorded")
	}
	if len(r.Skipped) != 1 || r.Skipped[0] != (Skipped{Path: "log", Why: "changed while it was recorded"}) {
		t.Errorf("skipped: %v", r.Skipped)
	}
	if r := record(t, s, tree); len(r.Skipped) != 0 {
		t.Errorf("skipped of a tree that stands still: %v", r.Skipped)
	}
}
