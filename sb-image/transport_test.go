package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/say"
)

// archiveOf packs a directory as oci-archive: has it.
func archiveOf(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

func zipped(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	if err := os.WriteFile(file+".gz", z.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file + ".gz"
}

func TestLayouts(t *testing.T) {
	l := newLayout(t)
	one, first := l.image("amd64", gzipLayer(small(t, "a", "1")), zstdLayer(small(t, "b", "2")))
	two, second := l.image("amd64", plainLayer(small(t, "a", "2")))
	l.tag("one", one)
	alone := archiveOf(t, l.dir)
	l.tag("two", two)
	archive := archiveOf(t, l.dir)
	s := newStore(t)
	for ref, want := range map[string]string{
		"oci:" + l.dir + ":one":                      first,
		"oci:" + l.dir + ":two":                      second,
		"oci-archive:" + archive + ":one":            first,
		"oci-archive:" + zipped(t, archive) + ":two": second,
		"oci-archive:" + alone:                       first,
	} {
		if got, err := pulled(t, s, ref, "linux/amd64"); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", ref, got, err, want)
		}
		if rec, name, err := s.find(ref, "linux/amd64"); err != nil || rec.Digest != want || name != ref {
			t.Errorf("find %s: %s, %s, %v", ref, rec.Digest, name, err)
		}
	}
	for ref, want := range map[string]string{
		"oci:" + l.dir:                         "several images",
		"oci:" + l.dir + ":three":              `called "three"`,
		"oci-archive:" + archive + ":three":    `called "three"`,
		"oci:" + t.TempDir():                   "no OCI image layout",
		"oci:/no/such/dir":                     "no such file",
		"oci-archive:" + l.dir + "/index.json": "archive",
	} {
		if _, err := pulled(t, s, ref, "linux/amd64"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", ref, err, want)
		}
	}
	if _, err := pulled(t, s, "oci:"+l.dir+":one", "linux/arm64"); err == nil || !strings.Contains(err.Error(), "linux/arm64") {
		t.Errorf("another platform: %v", err)
	}
}

// TestLayoutCorrupt: a layout is checked as a registry is.
func TestLayoutCorrupt(t *testing.T) {
	l := newLayout(t)
	packed := gzipLayer(small(t, "a", strings.Repeat("1", 5000)))
	d, config := l.image("amd64", packed)
	l.tag("x", d)
	for what, blob := range map[string]string{"layer": digestOf(packed.packed), "manifest": d["digest"].(string), "config": config} {
		s := newStore(t)
		if got, err := pulled(t, s, "oci:"+l.dir, "linux/amd64"); err != nil || got != config {
			t.Fatalf("%s: the control: %s, %v", what, got, err)
		}
		s = newStore(t)
		whole, err := os.ReadFile(l.blobFile(blob))
		if err != nil {
			t.Fatal(err)
		}
		bads := [][]byte{whole[:len(whole)-1], append(bytes.Clone(whole), 0), append(bytes.Clone(whole[:len(whole)-9]), "123456789"...)}
		if what == "layer" { // the same content, compressed otherwise
			bads = append(bads, zstdLayer(packed.content).packed)
		}
		for _, bad := range bads {
			if err := os.WriteFile(l.blobFile(blob), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := pulled(t, s, "oci:"+l.dir, "linux/amd64"); err == nil || !strings.Contains(err.Error(), "corrupt") {
				t.Errorf("%s: %v", what, err)
			}
			s.mustBeEmpty(t)
		}
		if err := os.WriteFile(l.blobFile(blob), whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// dockerSave writes what docker save does: every layer is plain, and one that two
// images share is a link in the second.
func dockerSave(t *testing.T) (file, first, second string) {
	t.Helper()
	l := newLayout(t)
	a, b := plainLayer(small(t, "a", "1")), plainLayer(small(t, "b", "2"))
	_, first = l.image("amd64", a)
	_, second = l.image("amd64", a, b)
	read := func(digest string) string {
		b, err := os.ReadFile(l.blobFile(digest))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	manifest := mustJSON(t, []saved{
		{"1.json", []string{"debian:one", "example.com/x:y"}, []string{"1/layer.tar"}},
		{"2.json", []string{"two:latest"}, []string{"2/layer.tar", "3/layer.tar"}},
	})
	file = filepath.Join(t.TempDir(), "saved.tar")
	content := tarOf(t, reg("1.json", read(first), 0o644), reg("2.json", read(second), 0o644), reg("1/layer.tar", string(a.content), 0o644),
		other(tar.TypeSymlink, "2/layer.tar", "../1/layer.tar"), reg("3/layer.tar", string(b.content), 0o644), reg("manifest.json", string(manifest), 0o644))
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, first, second
}

func TestDockerArchive(t *testing.T) {
	file, first, second := dockerSave(t)
	s := newStore(t)
	for ref, want := range map[string]string{
		file + ":debian:one":                   first,
		file + ":docker.io/library/debian:one": first,
		file + ":example.com/x:y":              first,
		file + ":two":                          second,
		zipped(t, file) + ":two:latest":        second,
	} {
		if got, err := pulled(t, s, "docker-archive:"+ref, "linux/amd64"); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", ref, got, err, want)
		}
	}
	for ref, want := range map[string]string{
		file:            "several images",
		file + ":three": `called "three"`,
		os.Args[0]:      "tar",
		"/no/such":      "no such file",
	} {
		if _, err := pulled(t, s, "docker-archive:"+ref, "linux/amd64"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", ref, err, want)
		}
	}
	s.mustBeEmpty(t, "images refs")
}

// TestTar: compressed or not, a root file system is one image; what it is not is said.
func TestTar(t *testing.T) {
	s := newStore(t)
	file := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(file, small(t, "a", "1"), 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := pulled(t, s, "tar:"+file, "linux/arm64")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"gzip", "xz", "zstd"} {
		if out, err := exec.Command(program, "-k", file).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		packed := file + map[string]string{"gzip": ".gz", "xz": ".xz", "zstd": ".zst"}[program]
		if got, err := pulled(t, s, "tar:"+packed, "linux/arm64"); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", packed, got, err, want)
		}
		b, err := os.ReadFile(packed)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(packed, b[:len(b)-6], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pulled(t, s, "tar:"+packed, "linux/arm64"); err == nil {
			t.Errorf("%s cut short: no error", packed)
		}
	}
	if rec, _, err := s.find("tar:"+file, "linux/arm64"); err != nil || rec.Platform != "linux/arm64" {
		t.Errorf("%+v, %v", rec, err)
	}
	if _, err := pulled(t, s, "tar:"+os.Args[0], "linux/arm64"); err == nil {
		t.Error("a program was taken for a tar archive")
	}
	if _, err := pulled(t, s, "tar:"+t.TempDir(), "linux/arm64"); err == nil {
		t.Error("a directory was taken for a tar archive")
	}
	s.mustBeEmpty(t, "images refs")
}

func TestParseRef(t *testing.T) {
	t.Chdir("/")
	for text, want := range map[string]string{
		"debian":                         "docker.io/library/debian:latest",
		"docker://debian":                "docker.io/library/debian:latest",
		"debian:bookworm-slim":           "docker.io/library/debian:bookworm-slim",
		"docker.io/debian":               "docker.io/library/debian:latest",
		"index.docker.io/library/debian": "docker.io/library/debian:latest",
		"owner/image":                    "docker.io/owner/image:latest",
		"ghcr.io/a/b":                    "ghcr.io/a/b:latest",
		"localhost:5000/x:y":             "localhost:5000/x:y",
		"ghcr.io/a/b@sha256:" + strings.Repeat("0", 64):     "ghcr.io/a/b@sha256:" + strings.Repeat("0", 64),
		"ghcr.io/a/b:tag@sha256:" + strings.Repeat("0", 64): "ghcr.io/a/b@sha256:" + strings.Repeat("0", 64),
		"oci:dir:tag":                       "oci:/dir:tag",
		"oci:./dir/":                        "oci:/dir",
		"oci-archive:/f":                    "oci-archive:/f",
		"docker-archive:f:debian:12":        "docker-archive:/f:debian:12",
		"tar:a:b.tar":                       "tar:/a:b.tar",
		"bootstrap:bookworm":                "bootstrap:bookworm",
		"bootstrap:sid?include=b,a,b":       "bootstrap:sid?include=a,b",
		"bootstrap:sid?include=b&include=a": "bootstrap:sid?include=a,b",
	} {
		if r, err := parseRef(text); err != nil || r.text != want {
			t.Errorf("%s: %q, %v; want %q", text, r.text, err, want)
		}
	}
	for _, text := range []string{
		"", "Debian", "a b", "https://example.com/x", "docker://", "oci:", "oci-archive:", "docker-archive::x", "tar:",
		"x@sha256:0", "bootstrap:", "bootstrap:Book", "bootstrap:-x", "bootstrap:a?b=c", "bootstrap:a?include=", "bootstrap:a?include=x;y",
		"bootstrap:a?include=--hook", "docker-daemon:x", "containers-storage:x",
	} {
		if r, err := parseRef(text); say.Code(err) != say.CodeUsage {
			t.Errorf("%q: %q, %v; want a usage error", text, r.text, err)
		}
	}
}

func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("mkfifo", filepath.Join(dir, "fifo")).Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if f, err := openRegular(root, "file"); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	for _, name := range []string{"fifo", "out", "../x", ".", "none"} {
		if f, err := openRegular(root, name); err == nil {
			f.Close()
			t.Errorf("%s was opened", name)
		}
	}
}

// TestArchiveNames: the names in an archive stay in memory, and are bounded.
func TestArchiveNames(t *testing.T) {
	for n, want := range map[int]string{3: "index.json", 70: "bytes of names"} {
		file := filepath.Join(t.TempDir(), "a.tar")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(f)
		for i := range n {
			name := fmt.Sprint(i, "/", strings.Repeat("n", 1_000_000))
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Format: tar.FormatPAX}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := pulled(t, newStore(t), "oci-archive:"+file, "linux/amd64"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", n, err, want)
		}
	}
}
