package undo

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	s.lax = true
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
	if os.Geteuid() == 0 { // who reads everything
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestUnreadable$", "-test.v")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestUnreadable") {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	s, tree := stage(t)
	write(t, tree+"/closed", "x")
	must(t, os.Chmod(tree+"/closed", 0))
	write(t, tree+"/dir/x", "x")
	must(t, os.Chmod(tree+"/dir", 0))
	defer os.Chmod(tree+"/dir", 0o700)
	write(t, tree+"/shut/x", "x")
	write(t, tree+"/open", "x")
	must(t, os.Chmod(tree+"/shut", 0o500))
	defer os.Chmod(tree+"/shut", 0o700)
	r := record(t, s, tree)
	if r.Missing != 2 || r.Skipped[0].Why != "permission denied" || r.Files != 2 {
		t.Errorf("%d files, skipped: %v", r.Files, r.Skipped)
	}
	// A directory that its owner may not write can be put back, and stays so.
	before := look(t, tree+"/shut")
	must(t, os.Chmod(tree+"/shut", 0o700))
	must(t, os.Remove(tree+"/shut/x"))
	must(t, os.Chmod(tree+"/shut", 0o500))
	if left := restore(t, s, r, false, "shut/x"); len(left) > 0 || !strings.Contains(look(t, tree+"/shut"), "40500 ") {
		t.Errorf("left: %v", left)
	}
	if left := restore(t, s, r, true); len(left) > 0 || look(t, tree+"/shut") != before {
		t.Errorf("left: %v; it is %s, not %s", left, look(t, tree+"/shut"), before)
	}
}

// meddler is a context that changes the tree whenever it is asked whether to end,
// as a scan does at each piece that it reads.
type meddler struct {
	context.Context
	change func()
}

func (m meddler) Err() error { m.change(); return nil }

// TestChangesWhileRecorded: a file that never stands still is listed, and not
// recorded half. One that changes once is recorded as it is then.
func TestChangesWhileRecorded(t *testing.T) {
	s, tree := stage(t)
	write(t, tree+"/still", "x")
	must(t, os.WriteFile(tree+"/log", make([]byte, 3<<20), 0o600))
	n := int64(3 << 20)
	grow := func() { n++; must(t, os.Truncate(tree+"/log", n)) }
	r, err := s.Record(meddler{t.Context(), grow}, tree, "test", plain)
	must(t, err)
	if r.byPath()["still"] == nil || r.byPath()["log"] != nil {
		t.Errorf("recorded: %v", r.Entries)
	}
	if len(r.Skipped) != 1 || r.Skipped[0] != (Skipped{Path: "log", Why: "changed while it was recorded"}) {
		t.Errorf("skipped: %v", r.Skipped)
	}
	calls := 0
	r, err = s.Record(meddler{t.Context(), func() {
		if calls++; calls == 5 { // while the file is read
			grow()
		}
	}}, tree, "test", plain)
	must(t, err)
	if e := r.byPath()["log"]; len(r.Skipped) != 0 || e == nil || e.Size != n || calls < 6 {
		t.Errorf("skipped: %v; %+v, want %d bytes; %d calls", r.Skipped, e, n, calls)
	}
}
