package fd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also a tool that takes descriptors: it takes those that its
// arguments name, KIND:N, closes the rest, and says which of 3 to 9 are open and
// what it would pass on.
func TestMain(m *testing.M) {
	if os.Getenv("FD_TEST_TOOL") == "" {
		os.Exit(m.Run())
	}
	for _, word := range os.Args[1:] {
		var kind Kind
		var n int
		if _, err := fmt.Sscanf(word, "%d:%d", &kind, &n); err != nil {
			panic(err)
		}
		f, err := Take("wire", n, kind)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		defer f.Close()
	}
	if err := CloseRest(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for n := 3; n < 10; n++ {
		if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil {
			fmt.Printf("%d:%v ", n, flags&unix.FD_CLOEXEC == 0)
		}
	}
	os.Exit(0)
}

// tool runs it with files as its descriptors from 3 on.
func tool(t *testing.T, files []*os.File, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "FD_TEST_TOOL=1")
	cmd.ExtraFiles = files
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// inherited returns a copy of f as a child would find it: open for a program
// that is started, under a number that no *os.File owns.
func inherited(t *testing.T, f *os.File) int {
	t.Helper()
	n, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 100)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kinds are files of many kinds, and what each may be taken as.
func kinds(t *testing.T) map[string]struct {
	f  *os.File
	as []Kind
} {
	t.Helper()
	must := func(f *os.File, err error) *os.File {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	dir := t.TempDir()
	dgram, far1, err1 := Pair("d", Dgram)
	stream, far2, err2 := Pair("s", Stream)
	r, w, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{dgram, far1, stream, far2, r, w} {
		must(f, nil)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		f  *os.File
		as []Kind
	}{
		"a datagram socket":     {dgram, []Kind{Dgram, Output}},
		"a stream socket":       {stream, []Kind{Stream, Pipe, Output}},
		"a pipe to read":        {r, []Kind{Pipe}},
		"a pipe to write":       {w, []Kind{Output}},
		"a FIFO":                {must(os.OpenFile(fifo, os.O_RDWR, 0)), []Kind{Pipe, Output}},
		"a file to read":        {must(os.Open(os.Args[0])), nil},
		"a file to write":       {must(os.Create(filepath.Join(dir, "file"))), []Kind{Output}},
		"a directory":           {must(os.Open(dir)), nil},
		"a device to write":     {must(os.OpenFile(os.DevNull, os.O_WRONLY, 0)), []Kind{Output}},
		"a device to read only": {must(os.Open(os.DevNull)), nil},
	}
}

// Every kind of file is taken as what it is and as nothing else.
func TestTake(t *testing.T) {
	for what, k := range kinds(t) {
		for _, kind := range []Kind{Dgram, Stream, Pipe, Output} {
			n := inherited(t, k.f)
			want := false
			for _, as := range k.as {
				want = want || as == kind
			}
			f, err := Take("wire", n, kind)
			if (err == nil) != want {
				t.Errorf("%s as %v: %v", what, kind, err)
			}
			if err != nil {
				if text := fmt.Sprintf("take wire: descriptor %d is not %v", n, kind); err.Error() != text {
					t.Errorf("%s as %v: %q, want %q", what, kind, err, text)
				}
				unix.Close(n)
				continue
			}
			if flags, _ := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s: a child would inherit it", what)
			}
			if _, err := Take("wire", n, kind); err == nil || !strings.Contains(err.Error(), "in use by another flag") {
				t.Errorf("%s, taken twice: %v", what, err)
			}
			f.Close()
		}
	}
}

func TestTakeNothing(t *testing.T) {
	if _, err := Take("wire", -1, Stream); err == nil || err.Error() != "take wire: no descriptor was given (--wire=N)" {
		t.Errorf("no number: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	n := inherited(t, r)
	r.Close()
	unix.Close(n)
	if _, err := Take("wire", n, Pipe); err == nil || err.Error() != fmt.Sprintf("take wire: descriptor %d is not open", n) {
		t.Errorf("a closed one: %v", err)
	}
}

// A taken socket waits in the runtime's poller: its deadline counts.
func TestTakePolls(t *testing.T) {
	near, far, err := Pair("x", Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	n := inherited(t, near)
	near.Close()
	f, err := Take("x", n, Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read past its deadline: %v", err)
	}
	f.SetReadDeadline(time.Time{})
	far.Write([]byte("x"))
	if b := make([]byte, 2); true {
		if n, err := f.Read(b); n != 1 || err != nil {
			t.Errorf("a read before it: %d, %v", n, err)
		}
	}
}

// A tool holds what it was told of and nothing else, and passes on none of it.
func TestCloseRest(t *testing.T) {
	a, b, err := Pair("x", Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	c, d, err := Pair("y", Dgram)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer d.Close()
	files := []*os.File{a, c, b, d}
	for _, x := range []struct{ args, want string }{
		{"", ""},
		{"1:3", "3:false"},
		{"0:4 1:5", "4:false 5:false"},
		{"1:3 0:4 1:5 0:6", "3:false 4:false 5:false 6:false"},
	} {
		out, err := tool(t, files, strings.Fields(x.args)...)
		var open []string
		for _, w := range strings.Fields(out) {
			if n := int(w[0] - '0'); n < 3+len(files) { // above are the runtime's own
				open = append(open, w)
			}
		}
		if got := strings.Join(open, " "); err != nil || got != x.want {
			t.Errorf("take %q: open are %q, want %q (%v)", x.args, got, x.want, err)
		}
	}
	if out, err := tool(t, files, "1:3", "1:3"); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("one for two flags: %q, %v", out, err)
	}
}

func TestPair(t *testing.T) {
	for kind, want := range map[Kind][]string{Stream: {"onetwo"}, Dgram: {"one", "two"}} {
		a, b, err := Pair("x", kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*os.File{a, b} {
			if flags, _ := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
				t.Error("a child would inherit it")
			}
		}
		a.Write([]byte("one"))
		a.Write([]byte("two"))
		for _, w := range want {
			buf := make([]byte, 100)
			if n, err := b.Read(buf); string(buf[:n]) != w || err != nil {
				t.Errorf("kind %v: read %q, %v; want %q", kind, buf[:n], err, w)
			}
		}
		a.Close()
		b.Close()
	}
}

func TestReady(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Ready(w, "1.2"); err != nil {
		t.Fatal(err)
	}
	if err := WaitReady(r, "1.2"); err != nil { // it reads to the end: Ready has closed w
		t.Error(err)
	}
	r.Close()
	if err := Ready(nil, "1.2"); err != nil {
		t.Errorf("nobody waits: %v", err)
	}
	r, w, _ = os.Pipe()
	r.Close()
	if err := Ready(w, "1.2"); err == nil {
		t.Error("the one who waited is gone: no error")
	}
}

func TestWaitReady(t *testing.T) {
	for said, want := range map[string]string{
		"ready 1.2\n":            "",
		"":                       "unexpected EOF",
		"ready 1.3\n":            "is version 1.3, this is 1.2",
		"ready 1.2":              `said "ready 1.2" instead of ready`,
		"ready 1.2\nready 1.2\n": "is version",
		"error\x1b[0m\n":         `said "error\x1b[0m" instead of ready`,
		"ready \n":               "is version ",
	} {
		err := WaitReady(strings.NewReader(said), "1.2")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %s", said, err, want)
		}
	}
	long := strings.NewReader(strings.Repeat("x", 1<<20))
	if err := WaitReady(long, "1.2"); err == nil || len(err.Error()) > 1000 || long.Len() < 1<<19 {
		t.Errorf("a child that says too much: %d bytes were left, %v", long.Len(), err)
	}
	if err := WaitReady(errReader{}, "1.2"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a read that fails: %v", err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// The leash ends with its far end, whatever was written on it, and not before.
func TestLeash(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	leash := Leash(r)
	// More than a pipe holds: when it is written, most of it was read.
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-leash:
		t.Error("it ended while its far end is open")
	default:
	}
	w.Close()
	select {
	case <-leash:
	case <-time.After(10 * time.Second):
		t.Error("it did not end with its far end")
	}
	select {
	case <-Leash(nil):
		t.Error("no leash ended")
	default:
	}
}
