package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// twoLayers is an image in a registry that stops in the middle of its second
// layer until it is let go.
type twoLayers struct {
	*counter
	r      *testReg
	first  string // the layer that comes at once
	second string
	config string
	stuck  chan struct{} // a value for each request that stopped
	letGo  func()
}

func newTwoLayers(t *testing.T) *twoLayers {
	t.Helper()
	l, c := newLayout(t), &counter{}
	one, two := gzipLayer(small(t, "one", "1")), plainLayer(small(t, "two", strings.Repeat("2", 1<<20)))
	d, config := l.image("amd64", one, two)
	l.tag("x", d)
	r := newRegistry(t, c.wrap)
	r.push(l, d, "two:x")
	x := &twoLayers{counter: c, r: r, first: digestOf(one.packed), second: digestOf(two.packed), config: config, stuck: make(chan struct{}, 10)}
	free := make(chan struct{})
	x.letGo = sync.OnceFunc(func() { close(free) })
	t.Cleanup(x.letGo)
	c.onGet(x.second, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "1050000")
		w.Write(two.packed[:500_000])
		w.(http.Flusher).Flush()
		x.stuck <- struct{}{}
		select {
		case <-free:
		case <-req.Context().Done():
		}
	})
	return x
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// TestKilled: a pull that is killed leaves nothing to be seen, its remains are
// gc's, and the next one goes on with the layers that came whole.
func TestKilled(t *testing.T) {
	for _, signal := range []os.Signal{unix.SIGKILL, unix.SIGTERM} {
		x := newTwoLayers(t)
		s := newStore(t)
		cmd := sbImage(t, "pull", "--platform=linux/amd64", x.r.host+"/two:x")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-x.stuck
		waitFor(t, "the first layer and a part of the second", func() bool {
			parts, _ := filepath.Glob(s.path("tmp", "blob-*"))
			return exists(s.path("blobs", strings.TrimPrefix(x.first, "sha256:"))) && len(parts) == 1 && diskUse(parts[0]) > 0
		})
		cmd.Process.Signal(signal)
		if cmd.Wait() == nil {
			t.Errorf("%v: the program ended with 0", signal)
		}
		left, _ := os.ReadDir(s.path("tmp"))
		if signal == unix.SIGTERM && (len(left) != 0 || !strings.Contains(said.String(), "interrupted")) {
			t.Errorf("after SIGTERM %d things are half made; it said %q", len(left), said.String())
		}
		if signal == unix.SIGKILL && len(left) == 0 {
			t.Error("nothing was half made: the kill came too late to show anything")
		}
		s.mustBeEmpty(t, "tmp blobs")
		if _, stderr, code := result(t, "path", "--platform=linux/amd64", x.r.host+"/two:x"); code != 1 || !strings.Contains(stderr, "sb-image pull") {
			t.Errorf("path: code %d, %s", code, stderr)
		}
		x.calm()
		out, stderr, code := result(t, "pull", "--platform=linux/amd64", x.r.host+"/two:x")
		if out != x.config+"\n" || code != 0 {
			t.Errorf("the next pull: %q, code %d, %s", out, code, stderr)
		}
		if n := x.gets(x.first); n != 1 {
			t.Errorf("the layer that had come was fetched %d times", n)
		}
		if out, stderr, code := result(t, "gc"); code != 0 || signal == unix.SIGKILL && out == "0\n" {
			t.Errorf("gc: %q, code %d, %s", out, code, stderr)
		}
		s.mustBeEmpty(t, "images refs")
	}
}

// TestTogether: of two pulls of one image one works, and the other waits for it.
func TestTogether(t *testing.T) {
	x := newTwoLayers(t)
	s := newStore(t)
	start := func() (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		cmd := sbImage(t, "pull", "--platform=linux/amd64", x.r.host+"/two:x")
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out, &said
	}
	a, outA, _ := start()
	<-x.stuck
	manifests := x.gets("/manifests/")
	b, outB, saidB := start()
	waitFor(t, "the second pull's question", func() bool { return x.gets("/manifests/") > manifests })
	// It asked; now it waits for the lock that the first one holds, or is about to.
	x.calm()
	x.letGo() // the first one's transfer breaks off, and is tried again
	if err := a.Wait(); err != nil || outA.String() != x.config+"\n" {
		t.Errorf("the first: %v, %q", err, outA)
	}
	if err := b.Wait(); err != nil || outB.String() != x.config+"\n" {
		t.Errorf("the second: %v, %q, %s", err, outB, saidB)
	}
	// The second layer was asked for again once, after its transfer broke off.
	if one, two := x.gets(x.first), x.gets(x.second); one != 1 || two != 2 {
		t.Errorf("the layers were fetched %d and %d times", one, two)
	}
	s.mustBeEmpty(t, "images refs")
}

func pullTar(t *testing.T, s *store, name, content string) (ref, digest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".tar")
	if err := os.WriteFile(file, small(t, name, content), 0o600); err != nil {
		t.Fatal(err)
	}
	digest, err := pulled(t, s, "tar:"+file, hostPlatform())
	if err != nil {
		t.Fatal(err)
	}
	return "tar:" + file, digest
}

// hold takes the lock that a running sandbox has on its image.
func hold(t *testing.T, file string) (letGo func()) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func TestRemove(t *testing.T) {
	s := newStore(t)
	one, digest := pullTar(t, s, "a", "same")
	other := strings.TrimSuffix(one, ".tar") + "2.tar"
	if err := os.Link(strings.TrimPrefix(one, "tar:"), strings.TrimPrefix(other, "tar:")); err != nil {
		t.Fatal(err)
	}
	if again, err := pulled(t, s, other, hostPlatform()); err != nil || again != digest {
		t.Fatalf("the same content under another name: %s, %v", again, err)
	}
	if out, _, code := result(t, "rm", one); code != 0 || out != "" || !exists(s.imageFile(digest, "erofs")) {
		t.Errorf("rm of one of two names: %q, code %d", out, code)
	}
	if out, _, code := result(t, "rm", other); code != 0 || out != digest+"\n" || exists(s.imageFile(digest, "erofs")) {
		t.Errorf("rm of the last name: %q, code %d", out, code)
	}
	if _, stderr, code := result(t, "rm", other); code != 1 || !strings.Contains(stderr, "no image") {
		t.Errorf("rm of what is not there: code %d, %s", code, stderr)
	}
	_, digest = pullTar(t, s, "b", "used")
	letGo := hold(t, s.imageFile(digest, "erofs"))
	if out, stderr, code := result(t, "rm", digest); code != 0 || out != "" || !strings.Contains(stderr, "in use") || !exists(s.imageFile(digest, "erofs")) {
		t.Errorf("rm of an image in use: %q, %q, code %d", out, stderr, code)
	}
	if out, _, code := result(t, "gc"); code != 0 || out != "0\n" || !exists(s.imageFile(digest, "erofs")) {
		t.Errorf("gc with the image in use: %q, code %d", out, code)
	}
	letGo()
	used := diskUse(s.imageFile(digest, "erofs")) + diskUse(s.imageFile(digest, "json"))
	out, _, code := result(t, "gc")
	if code != 0 || out != fmt.Sprintln(used) || exists(s.imageFile(digest, "erofs")) {
		t.Errorf("gc: %q, code %d; the image took %d bytes", out, code, used)
	}
	s.mustBeEmpty(t)
}

// TestGcKeeps what others work on, and what is whole.
func TestGcKeeps(t *testing.T) {
	s := newStore(t)
	_, digest := pullTar(t, s, "a", "kept")
	busy, err := s.temp("busy")
	if err != nil {
		t.Fatal(err)
	}
	busyDir, lock, err := s.tempDir("busy")
	if err != nil {
		t.Fatal(err)
	}
	named, err := s.lock(context.Background(), "something")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"tmp/dead", "blobs/0123", "images/0123.erofs", "locks/0123"} {
		if err := os.WriteFile(s.path(f), make([]byte, 10_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(s.path("tmp/dir/in"), 0o700); err != nil {
		t.Fatal(err)
	}
	gone := []string{"tmp/dead", "tmp/dir", "blobs/0123", "images/0123.erofs", "locks/0123"}
	out, stderr, code := result(t, "gc")
	if code != 0 || out == "0\n" {
		t.Errorf("gc: %q, code %d, %s", out, code, stderr)
	}
	for _, f := range gone {
		if exists(s.path(f)) {
			t.Errorf("%s is still there", f)
		}
	}
	for _, f := range []string{busy.Name(), busyDir, named.Name(), s.imageFile(digest, "erofs"), s.imageFile(digest, "json")} {
		if !exists(f) {
			t.Errorf("%s is gone", f)
		}
	}
	busy.discard()
	lock.Close()
	named.Close()
	result(t, "gc")
	for _, f := range []string{busyDir, named.Name()} {
		if exists(f) {
			t.Errorf("%s is still there when nobody holds it", f)
		}
	}
}

// TestRemoveNamed: an image that got a name after gc looked for names stays.
func TestRemoveNamed(t *testing.T) {
	s := newStore(t)
	name, digest := pullTar(t, s, "a", "named")
	if n, err := s.removeImage(digest); err != errInUse || n != 0 || !exists(s.imageFile(digest, "json")) {
		t.Errorf("%d, %v", n, err)
	}
	if err := os.Remove(s.refFile(name, hostPlatform())); err != nil {
		t.Fatal(err)
	}
	if n, err := s.removeImage(digest); err != nil || n == 0 || exists(s.imageFile(digest, "json")) {
		t.Errorf("the control: %d, %v", n, err)
	}
}

// TestPublish: a file is seen whole or not at all, and only its owner may write to it.
func TestPublish(t *testing.T) {
	s := newStore(t)
	f, err := s.temp("x")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(f, "content")
	to := s.path("images", "x")
	if exists(to) {
		t.Error("it is there before it is published")
	}
	if err := f.publish(to); err != nil {
		t.Fatal(err)
	}
	f.discard()
	if b, err := os.ReadFile(to); string(b) != "content" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	st, _ := os.Stat(to)
	if st.Mode() != fs.FileMode(0o600) {
		t.Errorf("mode %v", st.Mode())
	}
	g, err := s.temp("x")
	if err != nil {
		t.Fatal(err)
	}
	g.discard()
	if exists(g.Name()) {
		t.Error("what was discarded is still there")
	}
}
