package session

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/hashicorp/yamux"

	"sb/lib/fd"
)

// echo is a guest that answers its stdin on stdout, "err" on stderr, and exits
// with the number of signals and resizes it saw.
func echo(c Command, sv *Served) {
	n := 0
	for {
		in, err := sv.Input()
		switch {
		case err != nil:
			return
		case in.EOF:
			io.WriteString(sv.Stderr(), "err")
			sv.Exit(Status{Code: n})
			return
		case in.Stdin != nil:
			sv.Stdout().Write(in.Stdin)
		default:
			n++
		}
	}
}

func TestCommand(t *testing.T) {
	near, far := net.Pipe()
	go Serve(far, echo)
	h, err := NewHost(near)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var out, errOut bytes.Buffer
	p, err := h.Start(Command{Args: []string{"x"}}, &out, &errOut)
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("0123456789", 50000)
	io.WriteString(p, big)
	p.Resize(24, 80)
	p.Signal(15)
	p.CloseStdin()
	st, err := p.Wait()
	if err != nil || st.ExitCode() != 2 || out.String() != big || errOut.String() != "err" {
		t.Errorf("status %+v, %v; %d bytes out, %q on stderr", st, err, out.Len(), errOut.String())
	}
}

// One host follows another on the same stream, which somebody else holds open,
// and so it does after one that was killed.
func TestHostAfterHost(t *testing.T) {
	near, far, err := fd.Pair("guest", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	guest, err := net.FileConn(far)
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	defer guest.Close()
	go Serve(guest, echo)
	for i := range 3 {
		conn, err := net.FileConn(near)
		if err != nil {
			t.Fatal(err)
		}
		h, err := NewHost(conn)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p, err := h.Start(Command{}, &out, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p, "hello")
		if i == 1 {
			conn.Close() // killed
			continue
		}
		p.CloseStdin()
		if st, err := p.Wait(); err != nil || st.Code != 0 || out.String() != "hello" {
			t.Fatalf("host %d: %+v, %v, %q", i, st, err, out.String())
		}
		h.Close()
	}
}

func TestGuestEndsEarly(t *testing.T) {
	near, far := net.Pipe()
	go Serve(far, func(Command, *Served) {})
	h, _ := NewHost(near)
	defer h.Close()
	p, err := h.Start(Command{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err == nil {
		t.Error("a command without an exit frame ended well")
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		st   Status
		want int
	}{{Status{}, 0}, {Status{Code: 7}, 7}, {Status{Signal: 9}, 137}, {Status{Code: 256 + 3}, 3}} {
		if got := c.st.ExitCode(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.st, got, c.want)
		}
	}
}

// A guest that pings without end, or opens streams without end, and reads nothing
// makes the host hold nothing for it, and its commands go on.
func TestGuestFloods(t *testing.T) {
	near, far, err := fd.Pair("guest", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() { // a guest that floods before it serves
		r := bufio.NewReader(far)
		nonce, err := awaitHost(r)
		if err != nil {
			return
		}
		io.WriteString(far, greeting+nonce+"\n")
		var flood []byte
		for i := range 20_000 {
			ping := [yamuxHeader]byte{0, yamuxPing, 0, 1, 8: byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
			flood = append(flood, ping[:]...)
			open := [yamuxHeader]byte{0, 1, 0, 1} // a window update that opens a stream of an even number
			binary.BigEndian.PutUint32(open[4:], uint32(2*i+2))
			flood = append(flood, open[:]...)
		}
		far.Write(flood)
		mux, err := yamux.Server(&untilGoAway{r: r, w: far}, config())
		if err != nil {
			return
		}
		acceptAll(mux, echo)
	}()
	before := runtime.NumGoroutine()
	conn, err := net.FileConn(near)
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	h, err := NewHost(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p, err := h.Start(Command{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	p.CloseStdin()
	if st, err := p.Wait(); err != nil || st.Code != 0 {
		t.Errorf("a command after the flood: %+v, %v", st, err)
	}
	if n := runtime.NumGoroutine() - before; n > 100 {
		t.Errorf("%d goroutines are left of the flood", n)
	}
	if n := h.mux.NumStreams(); n > 1 {
		t.Errorf("%d streams are open", n)
	}
}

type pipe struct {
	io.Reader
	io.Writer
}

func (pipe) Close() error { return nil }

func TestFrames(t *testing.T) {
	buf := make([]byte, MaxFrame)
	frame := func(typ byte, n uint32) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{typ}, n), make([]byte, min(n, 10))...)
	}
	if _, b, err := (&stream{rw: pipe{bytes.NewReader(frame(frameStdout, 10)), nil}}).next(buf); err != nil || len(b) != 10 {
		t.Errorf("a good frame: %d bytes, %v", len(b), err)
	}
	for _, f := range [][]byte{frame(frameStdout, MaxFrame+1), frame(frameStdout, 1<<31), frame(0, 1), frame(99, 1)} {
		if _, _, err := (&stream{rw: pipe{bytes.NewReader(f), nil}}).next(buf); !errors.Is(err, errFrame) {
			t.Errorf("frame % x: %v", f[:5], err)
		}
	}
}

// No bytes from the guest make the host read past a frame's bound or panic.
func FuzzNext(f *testing.F) {
	f.Add([]byte{frameStdout, 0, 0, 0, 1, 'x', frameExit, 0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &stream{rw: pipe{bytes.NewReader(in), nil}}
		buf := make([]byte, MaxFrame)
		for {
			typ, b, err := s.next(buf)
			if err != nil {
				return
			}
			if typ < frameStart || typ > frameExit || len(b) > MaxFrame {
				t.Fatalf("type %d, %d bytes", typ, len(b))
			}
		}
	})
}

// Whatever frames the guest sends, and in whatever pieces: those that are no pings
// and open no stream pass as they are, and nothing else does.
func FuzzReplies(f *testing.F) {
	frame := func(typ byte, flags byte, n byte, data string) string {
		return string([]byte{0, typ, 0, flags, 0, 0, 0, 1, 0, 0, 0, n}) + data
	}
	f.Add([]byte(frame(yamuxData, 0, 3, "abc")+frame(yamuxPing, 1, 7, "")+frame(1, 2, 9, "")+frame(yamuxData, yamuxSYN, 2, "xy")+frame(yamuxGoAway, 0, 0, "")), 5)
	f.Fuzz(func(t *testing.T, in []byte, piece int) {
		piece = max(1, min(piece, 100))
		r := &replies{ReadWriteCloser: pipe{}, r: bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(in)), 64)}
		var got []byte
		for buf := make([]byte, piece); ; {
			n, err := r.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		var want []byte
		for rest := in; len(rest) >= 12; {
			size := 12
			if rest[1] == 0 {
				size += int(binary.BigEndian.Uint32(rest[8:12]))
			}
			whole := rest[:min(size, len(rest))]
			if rest[1] != 2 && rest[3]&1 == 0 {
				want = append(want, whole...)
			}
			rest = rest[len(whole):]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("% x passed as % x, want % x", in, got, want)
		}
	})
}
