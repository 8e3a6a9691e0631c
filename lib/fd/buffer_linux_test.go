package fd

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestPairHolds: more large frames wait on a wire than on a socket pair as the
// kernel makes it, whichever end they come from.
func TestPairHolds(t *testing.T) {
	holds := func(end int) (n int) {
		for frame := make([]byte, 65534); ; n++ {
			if err := unix.Send(end, frame, unix.MSG_DONTWAIT); err != nil {
				return n
			}
		}
	}
	plain, err := socketpair(unix.SOCK_DGRAM)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(plain[0])
	defer unix.Close(plain[1])
	near, far, err := Pair("frames", Dgram)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	few := holds(plain[0])
	for _, f := range []int{int(near.Fd()), int(far.Fd())} {
		if n := holds(f); n <= few || few == 0 {
			t.Errorf("%d frames wait on the wire, %d on a plain pair", n, few)
		}
	}
}
