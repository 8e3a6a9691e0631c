package decompress

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var wide = Limit{Bytes: 1 << 30, Ratio: 1 << 20, Free: 1 << 20}

func program(t testing.TB, in []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

func all(packed []byte, limit Limit) ([]byte, string, error) {
	z, err := New(bytes.NewReader(packed), limit)
	if err != nil {
		return nil, "", err
	}
	defer z.Close()
	b, err := io.ReadAll(z)
	return b, z.Kind, err
}

func TestKinds(t *testing.T) {
	content := []byte(strings.Repeat("some content, ", 10_000))
	for kind, packed := range map[string][]byte{
		"gzip": program(t, content, "gzip", "-c"),
		"zstd": program(t, content, "zstd", "-c"),
		"xz":   program(t, content, "xz", "-c"),
		"":     content,
	} {
		if got, k, err := all(packed, wide); err != nil || k != kind || !bytes.Equal(got, content) {
			t.Errorf("%q: kind %q, %d bytes, %v", kind, k, len(got), err)
		}
		if got, _, err := all(append(bytes.Clone(packed), packed...), wide); err != nil || len(got) != 2*len(content) {
			t.Errorf("%q twice: %d bytes, %v", kind, len(got), err)
		}
		if kind == "" {
			continue
		}
		for _, n := range []int{7, len(packed) / 2, len(packed) - 1} {
			if _, _, err := all(packed[:n], wide); err == nil {
				t.Errorf("%s cut to %d bytes of %d: no error", kind, n, len(packed))
			}
		}
		bad := bytes.Clone(packed)
		bad[len(bad)/2] ^= 0x55
		if got, _, err := all(bad, wide); err == nil && bytes.Equal(got, content) {
			t.Errorf("%s with a changed byte: no difference", kind)
		}
	}
	if got, kind, err := all(nil, wide); len(got) != 0 || kind != "" || err != nil {
		t.Errorf("nothing: %d bytes, %q, %v", len(got), kind, err)
	}
	for what, head := range map[string]string{"bzip2": "BZh91AY&SY", "lz4": "\x04\x22\x4d\x18xxxxxxxxx"} {
		if _, _, err := all([]byte(head), wide); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestBombs: what decompresses to more than it may, beside what may just do so.
func TestBombs(t *testing.T) {
	zeros := make([]byte, 4<<20)
	for kind, packed := range map[string][]byte{
		"gzip": program(t, zeros, "gzip", "-c"),
		"zstd": program(t, zeros, "zstd", "-c"),
		"xz":   program(t, zeros, "xz", "-c"),
	} {
		ratio := int64(len(zeros) / len(packed))
		for _, c := range []struct {
			limit Limit
			ok    bool
		}{
			{Limit{Bytes: 4 << 20, Ratio: 1 << 20, Free: 1 << 20}, true},
			{Limit{Bytes: 4<<20 - 1, Ratio: 1 << 20, Free: 1 << 20}, false},
			{Limit{Bytes: 1 << 30, Ratio: ratio + 1, Free: 1 << 20}, true},
			{Limit{Bytes: 1 << 30, Ratio: ratio / 2, Free: 1 << 20}, false},
			{Limit{Bytes: 1 << 30, Ratio: 1, Free: 4 << 20}, true},
		} {
			_, _, err := all(packed, c.limit)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s, %+v: %v", kind, c.limit, err)
			}
		}
	}
}

// TestWindow: a zstd stream that wants more memory than is given to one.
func TestWindow(t *testing.T) {
	for _, c := range []struct {
		window int
		ok     bool
	}{{8 << 20, true}, {256 << 20, false}} {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithWindowSize(c.window), zstd.WithSingleSegment(false))
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte("x"))
		w.Flush() // so that the frame does not say how little it holds
		w.Write([]byte("y"))
		w.Close()
		if got, _, err := all(b.Bytes(), wide); (err == nil) != c.ok || c.ok && string(got) != "xy" {
			t.Errorf("a window of %d bytes: %q, %v", c.window, got, err)
		}
	}
}

// FuzzNew: no stream makes it panic, or give more than the limit.
func FuzzNew(f *testing.F) {
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write([]byte("abc"))
	w.Close()
	f.Add(gz.Bytes())
	z, _ := zstd.NewWriter(nil)
	f.Add(z.EncodeAll([]byte("abc"), nil))
	f.Add([]byte("\xfd7zXZ\x00"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		got, _, _ := all(packed, Limit{Bytes: 1 << 16, Ratio: 10, Free: 1 << 10})
		if len(got) > 1<<16 {
			t.Errorf("%d bytes", len(got))
		}
	})
}
