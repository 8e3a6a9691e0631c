package link

import (
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/sb-gate/frame"

	"golang.org/x/sys/unix"
)

func testFilter(mtu int) *frame.Filter {
	net := manifest.Network{Pool: netip.MustParsePrefix(manifest.DefaultPool), MTU: mtu}
	return &frame.Filter{MTU: mtu, GuestMAC: manifest.GuestMAC, GatewayMAC: manifest.GatewayMAC, Guest: net.Guest(), Gateway: net.Gateway(), Subnet: net.Subnet()}
}

// endpoint is one on a wire whose far end is returned too.
func endpoint(t *testing.T) (*Endpoint, *os.File) {
	t.Helper()
	near, far, err := fd.Pair("frames", fd.Dgram)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(near, testFilter(1500), func(reason.Code) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); far.Close() })
	return e, far
}

// send sends one frame.
func (e *Endpoint) send(parts ...[]byte) {
	e.sending.Lock()
	defer e.sending.Unlock()
	e.out.parts = append(e.out.parts, parts...)
	e.queued()
	e.flush()
}

// A machine that does not read is waited for once, by however many goroutines
// send; when it reads again, frames come again.
func TestDeafMachine(t *testing.T) {
	e, far := endpoint(t)
	frame := make([]byte, 1000)
	began := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2500 { // more than the socket holds
				e.send(frame)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took < writeWait || took > writeWait+2*time.Second {
		t.Errorf("20000 frames to a machine that does not read took %v", took)
	}
	n := 0
	for buf := make([]byte, 2000); ; n++ {
		if _, _, err := unix.Recvfrom(int(far.Fd()), buf, unix.MSG_DONTWAIT); err != nil {
			break
		}
	}
	if n == 0 || n == 20000 {
		t.Errorf("%d frames were on the wire", n)
	}
	e.send(frame, []byte{1, 2, 3})
	buf := make([]byte, 2000)
	if size, _, err := unix.Recvfrom(int(far.Fd()), buf, unix.MSG_DONTWAIT); err != nil || size != 1003 {
		t.Errorf("when it reads again: %d bytes, %v", size, err)
	}
	if e.stuck {
		t.Error("it is still taken for deaf")
	}
}

// A part of the stack that panics costs one frame, and too many of them the wire.
func TestPanics(t *testing.T) {
	e, _ := endpoint(t)
	told := 0
	e.dropped = func(reason.Code) { told++ }
	for range maxPanics {
		e.guarded(func() { panic("in a test") })
	}
	if e.err != nil || told != maxPanics {
		t.Errorf("after %d panics: %v", told, e.err)
	}
	e.guarded(func() { panic("in a test") })
	if e.err == nil {
		t.Error("one more does not end the wire")
	}
}
