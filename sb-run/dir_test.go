package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/manifest"

	"golang.org/x/sys/unix"
)

// stateHome gives the test a state directory of its own, and returns where runs
// and logs are.
func stateHome(t *testing.T) (runs, logs string) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	t.Setenv("SB_HOME", home)
	return filepath.Join(home, "state", "run"), filepath.Join(home, "state", "log")
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestSweep: a run that lives is left alone; of one that was killed the log is
// kept, and nothing else.
func TestSweep(t *testing.T) {
	runs, logs := stateHome(t)
	live, err := newRunDir("live")
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(runs, dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(live.name, "audit.log", "live\n")
	for _, dead := range []string{"dead-1", "dead-2", "half-made"} {
		if err := os.Mkdir(filepath.Join(runs, dead), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"lock", "audit.log", "audit.log.1", "disk", "sandbox.toml"} {
		write("dead-1", f, "of dead-1 "+f+"\n")
	}
	write("dead-2", "lock", "")
	write("dead-2", "audit.log", "") // an empty one is no log
	write("half-made", "disk", "x")
	write("", "a-file", "not ours to judge")
	other, err := newRunDir("live")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a-file", live.name, other.name}
	slices.Sort(want)
	if got := names(t, runs); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if got := names(t, logs); !slices.Equal(got, []string{"dead-1.log", "dead-1.log.1"}) {
		t.Errorf("logs %q", got)
	}
	if text, _ := os.ReadFile(filepath.Join(logs, "dead-1.log")); string(text) != "of dead-1 audit.log\n" {
		t.Errorf("the log is %q", text)
	}
	if err := live.remove(); err != nil {
		t.Error(err)
	}
	if err := other.remove(); err != nil {
		t.Error(err)
	}
	if got := names(t, runs); !slices.Equal(got, []string{"a-file"}) {
		t.Errorf("at the end %q", got)
	}
	if got := names(t, logs); len(got) != 3 {
		t.Errorf("logs at the end %q", got)
	}
}

// TestManyAtOnce: runs that begin and end at once take nothing from each other.
func TestManyAtOnce(t *testing.T) {
	runs, logs := stateHome(t)
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			for range 5 {
				d, err := newRunDir("many")
				if err != nil {
					t.Error(n, err)
					return
				}
				if err := d.writeManifest(&manifest.Manifest{}); err != nil {
					t.Error(n, err)
				}
				f, err := d.openAudit()
				if err != nil {
					t.Error(n, err)
					return
				}
				fmt.Fprintln(f, d.name)
				f.Close()
				if err := d.checkManifest(); err != nil {
					t.Error(n, err)
				}
				if err := d.remove(); err != nil {
					t.Error(n, err)
				}
			}
		})
	}
	all.Wait()
	if got := names(t, runs); len(got) != 0 {
		t.Errorf("left %q", got)
	}
	if got := names(t, logs); len(got) < keptLogs {
		t.Errorf("%d logs were kept, want %d", len(got), keptLogs)
	}
}

// TestLockHeld: the lock is what says that a run lives, and no child has it.
func TestLockHeld(t *testing.T) {
	stateHome(t)
	d, err := newRunDir("x")
	if err != nil {
		t.Fatal(err)
	}
	free := func() bool {
		f, err := os.Open(d.file("lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return lock(f, unix.LOCK_EX|unix.LOCK_NB) == nil
	}
	if free() {
		t.Error("a run that lives does not hold its lock")
	}
	if flags, err := unix.FcntlInt(d.lock.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a child would inherit the lock: %v", err)
	}
	d.lock.Close()
	if !free() {
		t.Error("control: the lock is held by nobody and cannot be taken")
	}
}

// TestWrongModes: directories that others can enter are refused, with what to do,
// before anything starts.
func TestWrongModes(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", "config", "state", "state/run", "state/log"} {
		s := newStage(t)
		path := filepath.Join(s.home, dir)
		s.run("img", "--", "true").want(t, 0) // the control, which makes them
		if err := os.Chmod(path, 0o750); err != nil {
			t.Fatal(err)
		}
		s.run("img", "--", "true").want(t, 125, "sb-run: error: use "+path+": mode 0750 lets others in\n", "sb-run: hint: chmod 700 "+path+"\n")
		if n := len(s.starts("sb-gate")); n != 1 {
			t.Errorf("%s: %d gates were started", dir, n)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := newStage(t)
	s.env = append(s.env, "SB_HOME=relative")
	s.run("img").want(t, 125, `sb-run: error: SB_HOME is "relative", not an absolute path`)
	s = newStage(t)
	if err := os.WriteFile(filepath.Join(s.home, "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("img").want(t, 125, "sb-run: error: use "+s.home+"/state: not a directory")
}

// TestDropOld: the logs of so many runs are kept, both generations of each.
func TestDropOld(t *testing.T) {
	dir := t.TempDir()
	age := func(name string, hours int) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Duration(hours) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	age("a.log", 1)
	age("b.log", 5)
	age("b.log.1", 8)
	age("c.log", 6)
	age("c.log.1", 2) // as old as its newest file
	age("d.log", 7)
	age("d.log.1", 7)
	for _, c := range []struct {
		keep int
		want string
	}{
		{9, "a.log b.log b.log.1 c.log c.log.1 d.log d.log.1"},
		{3, "a.log b.log b.log.1 c.log c.log.1"},
		{2, "a.log c.log c.log.1"},
		{0, ""},
	} {
		dropOld(dir, c.keep)
		if got := strings.Join(names(t, dir), " "); got != c.want {
			t.Errorf("of %d runs: %s, want %s", c.keep, got, c.want)
		}
	}
}

// TestRotateAudit: a log that cannot be rotated stays where it is.
func TestRotateAudit(t *testing.T) {
	stateHome(t)
	d, err := newRunDir("x")
	if err != nil {
		t.Fatal(err)
	}
	defer d.remove()
	write := func(text string) {
		f, err := d.openAudit()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.WriteString(text)
	}
	for n := range 3 {
		write(fmt.Sprint("line ", n, "\n"))
		f, err := d.rotateAudit()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if text, _ := os.ReadFile(d.file("audit.log.1")); string(text) != fmt.Sprint("line ", n, "\n") {
			t.Errorf("the older generation is %q", text)
		}
	}
	write("stays\n")
	if err := os.Mkdir(d.file("audit.log.next"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.rotateAudit(); err == nil {
		t.Error("control: it was rotated")
	}
	if text, _ := os.ReadFile(d.file("audit.log")); string(text) != "stays\n" {
		t.Errorf("the log is %q", text)
	}
}
