package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	testregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/zstd"
)

// TestMain lets a test run this program as others do: as a process.
func TestMain(m *testing.M) {
	if os.Getenv("SB_IMAGE_AS_PROGRAM") != "" {
		main()
	}
	os.Exit(m.Run())
}

// sbImage returns sb-image with these arguments and the test's store.
func sbImage(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "SB_IMAGE_AS_PROGRAM=1", "NO_COLOR=1")
	return cmd
}

// result runs the program and returns what it printed and its exit code.
func result(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := sbImage(t, args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
		t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// newStore gives the test a store of its own.
func newStore(t testing.TB) *store {
	t.Helper()
	t.Setenv("SB_HOME", filepath.Join(t.TempDir(), "home"))
	s, err := openStore()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pulled(t testing.TB, s *store, text, platform string) (string, error) {
	t.Helper()
	name, err := parseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	return s.pull(context.Background(), name, platform, false)
}

// empty fails the test if the store holds anything half made, or any image at all.
func (s *store) mustBeEmpty(t testing.TB, but ...string) {
	t.Helper()
	for _, dir := range []string{"images", "refs", "blobs", "tmp"} {
		names, err := os.ReadDir(s.path(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if !strings.Contains(strings.Join(but, " "), dir) {
				t.Errorf("%s/%s was left", dir, n.Name())
			}
		}
	}
}

// A testLayer is a layer and the forms in which it may come.
type testLayer struct {
	content   []byte
	mediaType string
	packed    []byte
}

func plainLayer(content []byte) testLayer {
	return testLayer{content, "application/vnd.oci.image.layer.v1.tar", content}
}

func gzipLayer(content []byte) testLayer {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(content)
	w.Close()
	return testLayer{content, "application/vnd.oci.image.layer.v1.tar+gzip", b.Bytes()}
}

func zstdLayer(content []byte) testLayer {
	w, _ := zstd.NewWriter(nil)
	return testLayer{content, "application/vnd.oci.image.layer.v1.tar+zstd", w.EncodeAll(content, nil)}
}

// testLayout is an OCI layout in the making: a directory that any tool can read.
type testLayout struct {
	t     testing.TB
	dir   string
	index []map[string]any
}

func newLayout(t testing.TB) *testLayout {
	t.Helper()
	l := &testLayout{t: t, dir: filepath.Join(t.TempDir(), "layout")}
	if err := os.MkdirAll(filepath.Join(l.dir, "blobs/sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return l
}

func (l *testLayout) file(name string, b []byte) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), b, 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *testLayout) blobFile(digest string) string {
	return filepath.Join(l.dir, "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))
}

// blob stores b and returns its descriptor.
func (l *testLayout) blob(mediaType string, b []byte) map[string]any {
	l.t.Helper()
	if err := os.WriteFile(l.blobFile(digestOf(b)), b, 0o644); err != nil {
		l.t.Fatal(err)
	}
	return map[string]any{"mediaType": mediaType, "digest": digestOf(b), "size": len(b)}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
)

// image stores an image and returns its descriptor and its configuration's digest.
func (l *testLayout) image(arch string, layers ...testLayer) (map[string]any, string) {
	l.t.Helper()
	ids, list := []string{}, []any{}
	for _, layer := range layers {
		ids = append(ids, digestOf(layer.content))
		list = append(list, l.blob(layer.mediaType, layer.packed))
	}
	config := mustJSON(l.t, map[string]any{
		"os": "linux", "architecture": arch, "created": "2024-05-06T07:08:09Z",
		"config": map[string]any{"Env": []string{"A=b"}, "Entrypoint": []string{"/e"}, "Cmd": []string{"c"}, "WorkingDir": "/w", "User": "1000:1000", "ExposedPorts": map[string]any{"80/tcp": map[string]any{}}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	m := l.blob(typeManifest, mustJSON(l.t, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": l.blob(typeConfig, config), "layers": list}))
	m["platform"] = map[string]any{"os": "linux", "architecture": arch}
	return m, digestOf(config)
}

// tag gives what d describes a name, and writes the index.
func (l *testLayout) tag(tag string, d map[string]any) {
	l.t.Helper()
	named := map[string]any{"annotations": map[string]any{"org.opencontainers.image.ref.name": tag}}
	for k, v := range d {
		named[k] = v
	}
	l.index = append(l.index, named)
	l.file("index.json", mustJSON(l.t, map[string]any{"schemaVersion": 2, "manifests": l.index}))
}

// testReg is a registry on the loopback address that counts what it gives.
type testReg struct {
	t      testing.TB
	server *httptest.Server
	host   string
}

func newRegistry(t testing.TB, wrap func(http.Handler) http.Handler) *testReg {
	t.Helper()
	var h http.Handler = testregistry.New(testregistry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &testReg{t: t, server: s, host: strings.TrimPrefix(s.URL, "http://")}
}

// push puts an image or an index of a layout into the registry under a name.
func (r *testReg) push(l *testLayout, d map[string]any, repo string) {
	r.t.Helper()
	p, err := layout.FromPath(l.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	ref, err := name.ParseReference(r.host + "/" + repo)
	if err != nil {
		r.t.Fatal(err)
	}
	h, err := v1.NewHash(d["digest"].(string))
	if err != nil {
		r.t.Fatal(err)
	}
	if d["mediaType"] == typeIndex {
		top, err := p.ImageIndex()
		if err != nil {
			r.t.Fatal(err)
		}
		index, err := top.ImageIndex(h)
		if err != nil {
			r.t.Fatal(err)
		}
		err = remote.WriteIndex(ref, index)
		if err != nil {
			r.t.Fatal(err)
		}
		return
	}
	img, err := p.Image(h)
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// one is an entry of a test's tar archive.
type tarEntry struct {
	tar.Header
	content string
}

func tarOf(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		h.Size = int64(len(e.content))
		h.Format = tar.FormatPAX
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_600_000_000, 123456789)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, e.content)
	}
	w.Close()
	return b.Bytes()
}

// small is a layer with one file.
func small(t testing.TB, name, content string) []byte {
	return tarOf(t, tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content})
}

func reg(name, content string, mode int64) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content}
}

func other(kind byte, name, target string) tarEntry {
	return tarEntry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o755}, ""}
}
