package undo

import (
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSwappedDirectories: while another process swaps a directory for a link that
// leads outside, a restore changes nothing there, and a record reads nothing there.
func TestSwappedDirectories(t *testing.T) {
	s, tree := stage(t)
	outside := t.TempDir()
	write(t, outside+"/f0", "a long secret")
	before := look(t, outside)
	for i := range 20 {
		write(t, fmt.Sprintf("%s/dir/f%d", tree, i), fmt.Sprint("ours ", i))
	}
	r := record(t, s, tree)
	must(t, os.Symlink(outside, tree+"/link"))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			unix.Renameat2(unix.AT_FDCWD, tree+"/dir", unix.AT_FDCWD, tree+"/link", unix.RENAME_EXCHANGE)
		}
	}()
	put := 0
	for i := range 30 {
		for j := range 20 {
			os.Remove(fmt.Sprintf("%s/dir/f%d", tree, j)) // one of them, or nothing outside:
			write(t, outside+"/f0", "a long secret")
		}
		// The tree itself may change each time that it is read: then it is refused.
		now, err := s.Scan(t.Context(), tree, plain)
		for tries := 0; err != nil && tries < 100; tries++ {
			now, err = s.Scan(t.Context(), tree, plain)
		}
		must(t, err)
		for _, e := range now.Entries {
			if e.Kind == File && e.Size == int64(len("a long secret")) {
				t.Fatalf("round %d: %s of outside was recorded", i, e.Path)
			}
		}
		left, err := s.Restore(t.Context(), MakePlan(r, now, nil, true))
		must(t, err)
		put += 20 - len(left)
	}
	stop()
	<-done
	t.Logf("about %d files were put back meanwhile", put)
	files, err := os.ReadDir(outside)
	must(t, err)
	if text, _ := os.ReadFile(outside + "/f0"); len(files) != 1 || string(text) != "a long secret" {
		t.Errorf("outside there are %v now; before:\n%s", files, before)
	}
	// The control: with nobody swapping, all comes back.
	must(t, os.RemoveAll(tree+"/dir"))
	must(t, os.RemoveAll(tree+"/link"))
	if left := restore(t, s, r, true); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if text, _ := os.ReadFile(tree + "/dir/f7"); string(text) != "ours 7" {
		t.Errorf("f7 holds %q", text)
	}
}
