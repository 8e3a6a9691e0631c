package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSweepWorkspaces: what is kept for a workspace goes when that is gone, long unused
// and in no run's hands, and that is said; for any other it stays.
func TestSweepWorkspaces(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, c := range []struct {
		name, locked string
		gone, old    bool
		stays        bool
	}{
		{name: "gone", gone: true, old: true},
		{name: "used lately", gone: true, stays: true},
		{name: "there", old: true, stays: true},
		{name: "a run has it", gone: true, old: true, locked: "lock", stays: true},
		{name: "a run has its disk", gone: true, old: true, locked: "private.lock", stays: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := filepath.Join(s.work, c.name)
			os.Mkdir(work, 0o700)
			s.run("img", "-w", work, "--private", "own", "--", "true").want(t, 0, "!removed")
			files, _ := filepath.Glob(filepath.Join(s.home, "state", "workspaces", "*", "workspace"))
			dir := ""
			for _, f := range files {
				if text, _ := os.ReadFile(f); string(text) == work {
					dir = filepath.Dir(f)
				}
			}
			if _, err := os.Lstat(filepath.Join(dir, "private.disk")); err != nil {
				t.Fatal(err)
			}
			if c.gone {
				os.RemoveAll(work)
			}
			if c.old {
				then := time.Now().Add(-goneTime - time.Hour)
				os.Chtimes(filepath.Join(dir, "workspace"), then, then)
			}
			if c.locked != "" {
				f, err := os.OpenFile(filepath.Join(dir, c.locked), os.O_RDWR, 0)
				if err == nil {
					err = lock(f, unix.LOCK_SH)
				}
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
			}
			const removed = "removed what was kept for "
			want := removed + work + ", which is gone"
			if c.stays {
				want = "!" + removed
			}
			s.run("img", "--", "true").want(t, 0, want)
			if _, err := os.Lstat(dir); (err == nil) != c.stays {
				t.Errorf("it is there: %v", err == nil)
			}
			os.RemoveAll(dir)
		})
	}
}
