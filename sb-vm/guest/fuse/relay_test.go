//go:build linux

package fuse

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// ends are the far ends of a relay whose /dev/fuse is a socket that keeps
// messages apart, as the device does.
type ends struct {
	kernel, host int
	ended        chan error
	ready        chan bool
}

func start(t *testing.T) *ends {
	t.Helper()
	dev, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	port, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := &ends{dev[1], port[1], make(chan error, 1), make(chan bool, 1)}
	r := newRelay(dev[0], port[0], func() error { e.ready <- true; return nil })
	go func() { e.ended <- r.run() }()
	t.Cleanup(func() {
		fds := []int{dev[0], dev[1], port[0], port[1]}
		for _, fd := range fds {
			unix.Shutdown(fd, unix.SHUT_RDWR)
		}
		// No thread may use a number that another test's socket gets. run took
		// one of the ends.
		wait(t, r, readers)
		close(r.full)
		wait(t, r, readers+1)
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	for _, fd := range []int{e.kernel, e.host} {
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	}
	return e
}

func wait(t *testing.T, r *relay, ended int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); len(r.ends) < ended; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d threads have ended, want %d", len(r.ends), ended)
		}
	}
}

// reply is a message of the host's: size, error, unique, and something after it.
func reply(code int32, unique uint64, body string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(fusewire.OutHeader+len(body)))
	b = binary.LittleEndian.AppendUint32(b, uint32(code))
	b = binary.LittleEndian.AppendUint64(b, unique)
	return append(b, body...)
}

func (e *ends) fromHost(t *testing.T, b []byte) {
	t.Helper()
	if n, err := unix.Write(e.host, b); err != nil || n != len(b) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

// atKernel is the next message that the kernel gets.
func (e *ends) atKernel(t *testing.T) []byte {
	t.Helper()
	b := make([]byte, fusewire.MaxMessage)
	n, err := unix.Read(e.kernel, b)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return b[:n]
}

func TestRequests(t *testing.T) {
	e := start(t)
	for _, size := range []int{fusewire.InHeader, 41, 4096, 100000} {
		m := bytes.Repeat([]byte{byte(size)}, size)
		if _, err := unix.Write(e.kernel, m); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		for at := 0; at < size; {
			n, err := unix.Read(e.host, got[at:])
			if err != nil || n == 0 {
				t.Fatalf("%d bytes of %d, %v", at, size, err)
			}
			at += n
		}
		if !bytes.Equal(got, m) {
			t.Errorf("%d bytes are not the same", size)
		}
	}
}

// Each reply comes in one piece, however the stream cuts it.
func TestReplies(t *testing.T) {
	e := start(t)
	first := reply(0, 2, "the answer to INIT")
	e.fromHost(t, first)
	if got := e.atKernel(t); !bytes.Equal(got, first) {
		t.Fatalf("%q", got)
	}
	select {
	case <-e.ready:
	case <-time.After(10 * time.Second):
		t.Fatal("it is not ready")
	}
	var stream []byte
	var want [][]byte
	for i := range 50 {
		m := reply(int32(-i), uint64(2+i), string(bytes.Repeat([]byte{'x'}, i*i*20)))
		want = append(want, m)
		stream = append(stream, m...)
	}
	go func() {
		for step := 1; len(stream) > 0; step = step*3%1009 + 1 {
			n := min(step, len(stream))
			unix.Write(e.host, stream[:n])
			stream = stream[n:]
		}
	}()
	for i, m := range want {
		if got := e.atKernel(t); !bytes.Equal(got, m) {
			t.Fatalf("message %d has %d bytes, want %d", i, len(got), len(m))
		}
	}
}

// Notifications are acknowledged once they were handed over.
func TestNotifications(t *testing.T) {
	e := start(t)
	e.fromHost(t, reply(0, 2, "init"))
	e.atKernel(t)
	for range 3 * fusewire.AckWindow {
		n := reply(fusewire.InvalInode, 0, "a node and a range")
		e.fromHost(t, n)
		if got := e.atKernel(t); !bytes.Equal(got, n) {
			t.Fatalf("%q", got)
		}
		ack := make([]byte, fusewire.InHeader)
		if k, err := unix.Read(e.host, ack); err != nil || k != len(ack) {
			t.Fatalf("the acknowledgement has %d bytes, %v", k, err)
		}
		if h, err := fusewire.ParseHeader(ack); err != nil || h.Op != fusewire.Ack || h.Len != fusewire.InHeader {
			t.Fatalf("%+v, %v", h, err)
		}
	}
}

func TestBrokenStream(t *testing.T) {
	many := reply(0, 2, "init")
	for range 3*fusewire.AckWindow + 100 {
		many = append(many, reply(fusewire.InvalInode, 0, string(make([]byte, 240)))...)
	}
	for name, b := range map[string][]byte{
		"shorter than a header": {15, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		"longer than any":       {1, 0, 16, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0},
		"a long notification":   reply(fusewire.InvalEntry, 0, string(make([]byte, 400))),
		"more than the window":  many,
		"the share is refused":  reply(-int32(unix.EPROTO), 2, ""),
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			go unix.Write(e.host, b) // nobody reads at the kernel's end
			select {
			case err := <-e.ended:
				if err == nil {
					t.Error("it ended without a reason")
				}
				if name == "the share is refused" && !errors.Is(err, unix.EPROTO) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("it goes on")
			}
			select {
			case <-e.ready:
				if name != "more than the window" {
					t.Error("it said that it is ready")
				}
			default:
			}
		})
	}
	e := start(t)
	unix.Shutdown(e.host, unix.SHUT_WR)
	if err := <-e.ended; err != nil {
		t.Errorf("the end of the stream: %v", err)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	e := start(t)
	e.fromHost(t, reply(0, 2, "init"))
	e.atKernel(t)
	request, answer, notification := make([]byte, 200), reply(0, 4, "an answer"), reply(fusewire.InvalInode, 0, "a node and a range")
	buf := make([]byte, 4096)
	round := func() {
		for _, m := range [][]byte{answer, notification} {
			unix.Write(e.host, m)
			unix.Read(e.kernel, buf)
		}
		unix.Read(e.host, buf) // the acknowledgement
		unix.Write(e.kernel, request)
		unix.Read(e.host, buf)
	}
	round()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 3000
	for range rounds {
		round()
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > rounds/10 {
		t.Errorf("%d allocations for %d messages", n, 4*rounds)
	}
}

func TestUnescape(t *testing.T) {
	if got := unescape.Replace(`/a\040b\134c`); got != `/a b\c` {
		t.Errorf("%q", got)
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"/mnt"}, {"--port=3"}, {"--port=3", "--port-path=/dev/x", "/mnt"}, {"--port=3", "a", "b"}, {"--nonsense", "/mnt"}} {
		if err := Main(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
