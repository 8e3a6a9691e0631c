package keep

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestHide: no core file, and no other process of the user's reads the memory.
func TestHide(t *testing.T) {
	var limit unix.Rlimit
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || n != 1 {
		t.Skipf("dumpable is %d before: %v", n, err)
	}
	hide()
	defer unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || n != 0 {
		t.Errorf("dumpable is %d, %v", n, err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Cur != 0 || limit.Max != 0 {
		t.Errorf("a core file may have %d bytes, %v", limit.Cur, err)
	}
}
