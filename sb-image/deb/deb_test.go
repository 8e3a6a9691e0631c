package deb

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pack makes a package with dpkg-deb, of a tree with one file.
func pack(t *testing.T, compression string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"DEBIAN/control": "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.com>\nDescription: x\n",
		"boot/vmlinuz-1": strings.Repeat("kernel", 1001),
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "x.deb")
	if out, err := exec.Command("dpkg-deb", "-Z"+compression, "--build", dir, file).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func content(deb []byte) (string, error) {
	found := ""
	err := Walk(bytes.NewReader(deb), func(h *tar.Header, r io.Reader) error {
		if h.Name == "./boot/vmlinuz-1" {
			b, err := io.ReadAll(r)
			found = string(b)
			return err
		}
		return nil
	})
	return found, err
}

func TestWalk(t *testing.T) {
	for _, compression := range []string{"xz", "gzip", "none", "zstd"} {
		deb := pack(t, compression)
		if !Magic(deb) {
			t.Errorf("%s: no magic", compression)
		}
		if got, err := content(deb); err != nil || got != strings.Repeat("kernel", 1001) {
			t.Errorf("%s: %d bytes, %v", compression, len(got), err)
		}
		for _, n := range []int{0, 7, 40, 70, 100, len(deb) - 70, len(deb) - 3} {
			if _, err := content(deb[:n]); err == nil {
				t.Errorf("%s cut to %d bytes of %d: no error", compression, n, len(deb))
			}
		}
	}
}

func TestVisitError(t *testing.T) {
	mine := errors.New("mine")
	err := Walk(bytes.NewReader(pack(t, "gzip")), func(*tar.Header, io.Reader) error { return mine })
	if !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
}

func ar(members ...string) []byte {
	b := arMagic
	for n := 0; n < len(members); n += 2 {
		b += fmt.Sprintf("%-16s%-12s%-6s%-6s%-8s%-10d`\n%s", members[n], "0", "0", "0", "100644", len(members[n+1]), members[n+1])
		if len(members[n+1])%2 == 1 {
			b += "\n"
		}
	}
	return []byte(b)
}

func TestRefusals(t *testing.T) {
	var empty bytes.Buffer
	w := tar.NewWriter(&empty)
	w.Close()
	if _, err := content(ar("debian-binary", "2.0\n", "odd", "x", "data.tar", empty.String())); err != nil {
		t.Errorf("the control: %v", err)
	}
	many := make([]string, 40)
	for what, deb := range map[string][]byte{
		"no package":        []byte("nothing at all"),
		"no data":           ar("debian-binary", "2.0\n"),
		"too many members":  ar(many...),
		"a negative length": bytes.Replace(ar("debian-binary", "2.0\n"), []byte("4         `"), []byte("-4        `"), 1),
		"a wrong end":       bytes.Replace(ar("debian-binary", "2.0\n"), []byte("`\n"), []byte("x\n"), 1),
	} {
		if _, err := content(deb); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// FuzzWalk: no package makes it panic, or give an entry more bytes than it was given.
func FuzzWalk(f *testing.F) {
	var one bytes.Buffer
	w := tar.NewWriter(&one)
	w.WriteHeader(&tar.Header{Name: "x", Size: 3})
	w.Write([]byte("abc"))
	w.Close()
	f.Add(ar("debian-binary", "2.0\n", "data.tar", one.String()))
	f.Fuzz(func(t *testing.T, deb []byte) {
		Walk(bytes.NewReader(deb), func(h *tar.Header, r io.Reader) error {
			if h.Size > 1<<20 { // sparse
				return errors.New("large")
			}
			_, err := io.Copy(io.Discard, r)
			return err
		})
	})
}
