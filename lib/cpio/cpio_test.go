package cpio

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fill writes one entry of every kind.
func fill(t *testing.T, w *Writer) {
	t.Helper()
	for _, err := range []error{
		w.Dir("dev", 0o755),
		w.Dir("/deep", 0o1777),
		w.Dir("deep/er", 0o700),
		w.File("deep/er/odd", 0o4755, 5, strings.NewReader("five!rest")),
		w.File("empty", 0o600, 0, nil),
		w.File("big", 0o644, 1<<20, bytes.NewReader(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))),
		w.Symlink("link", "deep/er/odd"),
		w.Char("dev/console", 0o600, 5, 1),
		w.Block("dev/vda", 0o660, 254, 300),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAgainstCPIO unpacks the archive with the cpio program.
func TestAgainstCPIO(t *testing.T) {
	program, err := exec.LookPath("cpio")
	if err != nil {
		t.Fatalf("%v: install cpio", err)
	}
	var archive bytes.Buffer
	fill(t, NewWriter(&archive))
	dir := t.TempDir()
	args := []string{"--extract", "--quiet", "--preserve-modification-time", "--no-absolute-filenames"}
	root := os.Geteuid() == 0
	if !root { // only root makes device nodes
		args = append(args, "--nonmatching", "dev/*")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(archive.Bytes())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, out)
	}
	for name, want := range map[string]uint32{
		"deep": unix.S_IFDIR | 0o1777, "deep/er": unix.S_IFDIR | 0o700, "deep/er/odd": unix.S_IFREG | 0o4755,
		"empty": unix.S_IFREG | 0o600, "big": unix.S_IFREG | 0o644, "link": unix.S_IFLNK | 0o777,
	} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil || uint32(st.Mode) != want || st.Mtim.Sec != 0 && name != "link" && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			t.Errorf("%s: mode %o, mtime %d, %v; want mode %o, mtime 0", name, st.Mode, st.Mtim.Sec, err, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "link")); string(b) != "five!" {
		t.Errorf("through the link: %q, %v", b, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "big")); len(b) != 1<<20 || string(b[1<<20-4:]) != "cdef" {
		t.Errorf("big: %d bytes", len(b))
	}
	if root {
		for name, want := range map[string][3]uint32{"dev/console": {unix.S_IFCHR | 0o600, 5, 1}, "dev/vda": {unix.S_IFBLK | 0o660, 254, 300}} {
			var st unix.Stat_t
			err := unix.Lstat(filepath.Join(dir, name), &st)
			if got := [3]uint32{uint32(st.Mode), unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))}; err != nil || got != want {
				t.Errorf("%s: %o, %v; want %o", name, got, err, want)
			}
		}
	}
}

func TestSameCallsSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	fill(t, NewWriter(&a))
	fill(t, NewWriter(&b))
	if !bytes.Equal(a.Bytes(), b.Bytes()) || a.Len()%512 != 0 {
		t.Errorf("two archives of %d and %d bytes: not equal, or not padded to 512", a.Len(), b.Len())
	}
}

func TestRefusals(t *testing.T) {
	for what, add := range map[string]func(*Writer) error{
		"an empty name":    func(w *Writer) error { return w.Dir("/", 0o755) },
		"the trailer":      func(w *Writer) error { return w.Dir("TRAILER!!!", 0o755) },
		"a NUL":            func(w *Writer) error { return w.Dir("a\x00b", 0o755) },
		"a long name":      func(w *Writer) error { return w.Dir(strings.Repeat("x", 4096), 0o755) },
		"too large a file": func(w *Writer) error { return w.File("x", 0o644, 1<<32, nil) },
		"a short file":     func(w *Writer) error { return w.File("x", 0o644, 5, strings.NewReader("four")) },
	} {
		w := NewWriter(new(bytes.Buffer))
		if err := w.Dir(strings.Repeat("x", 4095), 0o755); err != nil {
			t.Errorf("control before %s: %v", what, err)
		}
		if err := add(w); err == nil {
			t.Errorf("%s: no error", what)
		}
		if w.Dir("x", 0o755) == nil || w.Close() == nil {
			t.Errorf("%s: forgotten by the next call", what)
		}
	}
}

// full fails after n bytes, as a full disk does.
type full struct{ n int }

var errFull = errors.New("full")

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteError(t *testing.T) {
	for n := range 700 {
		w := NewWriter(&full{n})
		w.Dir("a", 0o755)
		w.File("b", 0o644, 3, strings.NewReader("abc"))
		if err := w.Close(); (err == nil) != (n >= 512) || err != nil && !errors.Is(err, errFull) {
			t.Fatalf("room for %d bytes: %v", n, err)
		}
	}
}
