package main

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"sb/lib/fd"
	"sb/lib/handover"
	"sb/lib/reason"

	"golang.org/x/sys/unix"
)

// TestHandStarved: a connection that cannot be handed over, for want of a descriptor
// or of sb-broker, is refused, and what it had is given back.
func TestHandStarved(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	outer, err := newOuterConn(c.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	near, far, err := fd.Pair("broker", fd.Dgram)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	wire, err := handover.New(near)
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{wire: wire, flows: map[uint64]*handed{}}
	free := descriptors(t)
	hand := func(n int, want reason.Code) {
		t.Helper()
		free(n)
		h, id, why := b.hand(&flow{outer: outer}, ruleName(t, "api.example"))
		free(100)
		if why != want || (h == nil) != (want != "") {
			t.Errorf("%d descriptors: %v, %q, not %q", n, h, why, want)
		}
		if h != nil {
			b.leave(id)
			h.conn.Close()
		}
		if len(b.flows) != 0 {
			t.Errorf("%d descriptors: %d connections are counted", n, len(b.flows))
		}
	}
	hand(1, reason.DescriptorsOut) // no pair
	hand(2, reason.DescriptorsOut) // a pair, and no way to hand it over
	hand(3, "")
	wire.Close()
	hand(3, reason.BrokerDied)
}

// descriptors is what lets the test have so many more of them, until it ends.
func descriptors(t *testing.T) (free func(n int)) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	var held []int
	t.Cleanup(func() {
		for _, fd := range held {
			unix.Close(fd)
		}
		unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
		null.Close()
	})
	limit := old
	limit.Cur = min(old.Cur, 1024)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return func(n int) {
		t.Helper()
		for {
			fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				break
			}
			held = append(held, fd)
		}
		if len(held) < n {
			t.Fatalf("%d descriptors can be freed, not %d", len(held), n)
		}
		for range n {
			unix.Close(held[len(held)-1])
			held = held[:len(held)-1]
		}
	}
}

// TestDialStarved: a dial that fails for want of a descriptor, the gate's or the
// host's, says so.
func TestDialStarved(t *testing.T) {
	for err, want := range map[error]reason.Code{
		syscall.EMFILE:     reason.DescriptorsOut,
		syscall.ENFILE:     reason.DescriptorsOut,
		syscall.ECONNRESET: reason.ConnectFailed,
	} {
		wrapped := &net.OpError{Op: "dial", Err: fmt.Errorf("socket: %w", os.NewSyscallError("socket", err))}
		if got := dialReason(wrapped); got != want {
			t.Errorf("%v: %s, not %s", err, got, want)
		}
	}
}
