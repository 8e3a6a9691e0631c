package flatten

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/sb-image/erofs"

	reader "github.com/erofs/go-erofs"
)

// An entry is one line of a layer: TYPE NAME [TARGET or CONTENT].
type entry struct {
	kind byte
	name string
	data string
	set  func(*tar.Header)
}

func dir(name string) entry           { return entry{kind: tar.TypeDir, name: name} }
func file(name, content string) entry { return entry{kind: tar.TypeReg, name: name, data: content} }
func symlink(name, target string) entry {
	return entry{kind: tar.TypeSymlink, name: name, data: target}
}
func link(name, target string) entry { return entry{kind: tar.TypeLink, name: name, data: target} }

func layer(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: 0o644, Format: tar.FormatPAX}
		if e.kind == tar.TypeReg {
			h.Size = int64(len(e.data))
		} else {
			h.Linkname = e.data
		}
		if e.set != nil {
			e.set(h)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("entry %q: %v", e.name, err)
		}
		if e.kind == tar.TypeReg {
			io.WriteString(w, e.data)
		}
	}
	w.Close()
	return b.Bytes()
}

func newImage(t testing.TB) (*Image, *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	image := open("image")
	return New(erofs.NewWriter(image, open("spool"))), image
}

// flat returns what the layers make, a line a file: path, type, and content or target.
func flat(t testing.TB, layers ...[]byte) (string, error) {
	t.Helper()
	m, image := newImage(t)
	for _, l := range layers {
		if err := m.Layer(bytes.NewReader(l)); err != nil {
			return "", err
		}
	}
	if err := m.Finish(); err != nil {
		return "", err
	}
	img, err := reader.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	err = fs.WalkDir(img, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		line := p
		switch {
		case d.IsDir():
			line += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := fs.ReadLink(img, p)
			if err != nil {
				return err
			}
			line += " -> " + to
		case d.Type().IsRegular():
			b, err := fs.ReadFile(img, p)
			if err != nil {
				return err
			}
			line += " = " + string(b)
			if info, err := d.Info(); err == nil && info.Sys().(*reader.Stat).Nlink > 1 {
				line += fmt.Sprintf(" (%d links)", info.Sys().(*reader.Stat).Nlink)
			}
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "; "), nil
}

func TestLayers(t *testing.T) {
	base := layer(t, dir("etc/"), file("etc/a", "1"), file("etc/b", "2"), dir("etc/sub/"), file("etc/sub/c", "3"), symlink("lib", "usr/lib"), dir("usr/lib/"))
	for _, c := range []struct {
		what string
		top  []byte
		want string
	}{
		{"nothing", layer(t), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/c = 3; lib -> usr/lib; usr/; usr/lib/"},
		{"a whiteout", layer(t, file("etc/.wh.a", "")), "etc/; etc/b = 2; etc/sub/; etc/sub/c = 3; lib -> usr/lib; usr/; usr/lib/"},
		{"a whiteout of a directory", layer(t, file("etc/.wh.sub", "")), "etc/; etc/a = 1; etc/b = 2; lib -> usr/lib; usr/; usr/lib/"},
		{"a whiteout of what is not there", layer(t, file("etc/.wh.x", ""), file("no/.wh.x", "")), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/c = 3; lib -> usr/lib; usr/; usr/lib/"},
		{"an opaque directory", layer(t, dir("etc/"), file("etc/.wh..wh..opq", ""), file("etc/new", "4")), "etc/; etc/new = 4; lib -> usr/lib; usr/; usr/lib/"},
		{"opaque behind the new file", layer(t, dir("etc/"), file("etc/new", "4"), file("etc/.wh..wh..opq", "")), "etc/; etc/new = 4; lib -> usr/lib; usr/; usr/lib/"},
		{"a whiteout behind the new directory", layer(t, dir("etc/sub/"), file("etc/sub/new", "4"), file("etc/.wh.sub", "")), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/new = 4; lib -> usr/lib; usr/; usr/lib/"},
		{"a whiteout behind a new file in an old directory", layer(t, file("etc/sub/new", "4"), file("etc/.wh.sub", "")), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/new = 4; lib -> usr/lib; usr/; usr/lib/"},
		{"aufs's books", layer(t, dir(".wh..wh.plnk/"), file(".wh..wh.plnk/1.2", ""), file(".wh..wh.aufs", "")), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/c = 3; lib -> usr/lib; usr/; usr/lib/"},
		{"a file for a directory", layer(t, file("etc", "5")), "etc = 5; lib -> usr/lib; usr/; usr/lib/"},
		{"a directory for a link", layer(t, dir("lib/"), file("lib/x", "6")), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/c = 3; lib/; lib/x = 6; usr/; usr/lib/"},
		{"through a link", layer(t, file("lib/x/y", "7")), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/c = 3; lib -> usr/lib; usr/; usr/lib/; usr/lib/x/; usr/lib/x/y = 7"},
		{"a hard link to a lower layer", layer(t, link("etc/z", "etc/a"), file("etc/a", "8")), "etc/; etc/a = 8; etc/b = 2; etc/sub/; etc/sub/c = 3; etc/z = 1; lib -> usr/lib; usr/; usr/lib/"},
		{"a hard link through a link", layer(t, file("usr/lib/x", "9"), link("etc/z", "/lib/x")), "etc/; etc/a = 1; etc/b = 2; etc/sub/; etc/sub/c = 3; etc/z = 9 (2 links); lib -> usr/lib; usr/; usr/lib/; usr/lib/x = 9 (2 links)"},
		{"an entry twice", layer(t, file("etc/a", "x"), file("./etc//a", "y")), "etc/; etc/a = y; etc/b = 2; etc/sub/; etc/sub/c = 3; lib -> usr/lib; usr/; usr/lib/"},
		{"a leading slash", layer(t, file("/etc/a", "x")), "etc/; etc/a = x; etc/b = 2; etc/sub/; etc/sub/c = 3; lib -> usr/lib; usr/; usr/lib/"},
	} {
		if got, err := flat(t, base, c.top); err != nil || got != c.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", c.what, got, err, c.want)
		}
	}
}

// TestWhiteoutOfLinkedName: a link made in this layer to a lower file is this layer's.
func TestWhiteoutKeepsOwnLinks(t *testing.T) {
	base := layer(t, dir("d/"), file("d/a", "1"))
	got, err := flat(t, base, layer(t, link("d/b", "d/a"), file("d/.wh..wh..opq", "")))
	if want := "d/; d/b = 1"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// hostile are layers that no image builder makes; fine is the same without what
// is wrong with it.
func TestHostile(t *testing.T) {
	long := strings.Repeat("n", 256)
	path := strings.Repeat(long[1:]+"/", 16) + "x"
	for _, c := range []struct {
		what          string
		hostile, fine []entry
		want          string
	}{
		{"a name with ..", []entry{file("../x", "")}, []entry{file("x", "")}, ".."},
		{"a name with .. inside", []entry{dir("a/"), file("a/../../x", "")}, []entry{dir("a/"), file("a/b../x", "")}, ".."},
		{"an absolute name with ..", []entry{file("/../x", "")}, []entry{file("/x", "")}, ".."},
		{"a hard link out", []entry{link("x", "../../etc/passwd")}, []entry{file("y", ""), link("x", "y")}, ".."},
		{"a hard link to what only the host has", []entry{link("x", "/etc/passwd")}, []entry{file("etc/passwd", ""), link("x", "/etc/passwd")}, "not there"},
		{"a hard link to a directory", []entry{dir("d/"), link("x", "d")}, []entry{file("d", ""), link("x", "d")}, "a directory"},
		{"a hard link to the root", []entry{link("x", "/")}, []entry{file("y", ""), link("x", "/y")}, "a directory"},
		{"a write through a link to the host", []entry{symlink("etc", "/tmp/probe"), file("etc/x", "")}, []entry{dir("tmp/probe/"), symlink("etc", "/tmp/probe"), file("etc/x", "")}, "not there"},
		{"a write through a link with ..", []entry{symlink("etc", "../../../../tmp"), file("etc/x", "")}, []entry{dir("tmp/"), symlink("etc", "../../../../tmp"), file("etc/x", "")}, "not there"},
		{"a whiteout through a link", []entry{symlink("etc", "/tmp/probe"), file("etc/.wh.victim", "")}, []entry{dir("tmp/probe"), symlink("etc", "/tmp/probe"), file("etc/.wh.victim", "")}, "not there"},
		{"links in a circle", []entry{symlink("a", "b"), symlink("b", "a"), file("a/x", "")}, []entry{symlink("a", "b"), dir("b/"), file("a/x", "")}, "too many symbolic links"},
		{"a long way through links", []entry{dir("d/"), symlink("a", strings.Repeat("d/../", 800)+"d"), symlink("b", strings.Repeat("a/../", 8)+"d"), file("b/x", "")},
			[]entry{dir("d/"), symlink("a", strings.Repeat("d/../", 800)+"d"), symlink("b", "a/../d"), file("b/x", "")}, "too long"},
		{"a file on the way", []entry{file("a", ""), file("a/x", "")}, []entry{dir("a"), file("a/x", "")}, "no directory"},
		{"a whiteout of nothing", []entry{file("a/.wh.", "")}, []entry{file("a/.wh.x", "")}, "nothing away"},
		{"a whiteout of .", []entry{file("a/.wh..", "")}, []entry{file("a/.wh..x", "")}, "nothing away"},
		{"a whiteout of ..", []entry{file("a/.wh...", "")}, []entry{file("a/.wh...x", "")}, "nothing away"},
		{"a whiteout of whiteouts", []entry{file("a/.wh..wh.", "")}, []entry{file("a/.wh..wh..opq", "")}, "nothing away"},
		{"a whiteout as a directory", []entry{file(".wh.x/y", "")}, []entry{file(".whx/y", "")}, "no name of a directory"},
		{"a long name", []entry{file(long, "")}, []entry{file(long[1:], "")}, "255"},
		{"a long path", []entry{file(path, "")}, []entry{file(path[:4095], "")}, "4096"},
		{"an empty target", []entry{{kind: tar.TypeSymlink, name: "x", data: ""}}, []entry{symlink("x", "y")}, "target"},
		{"a long target", []entry{symlink("x", strings.Repeat("t", 4096))}, []entry{symlink("x", strings.Repeat("t", 4095))}, "4095"},
		{"a root that is a file", []entry{file(".", "")}, []entry{dir("./")}, "root"},
		{"a device of an impossible number", []entry{{kind: tar.TypeChar, name: "x", set: func(h *tar.Header) { h.Devmajor = 4096 }}},
			[]entry{{kind: tar.TypeChar, name: "x", set: func(h *tar.Header) { h.Devmajor = 4095 }}}, "no device"},
		{"an impossible owner", []entry{{kind: tar.TypeDir, name: "x", set: func(h *tar.Header) { h.Uid = 1<<32 - 1 }}},
			[]entry{{kind: tar.TypeDir, name: "x", set: func(h *tar.Header) { h.Uid = 1<<32 - 2 }}}, "no user"},
		{"an unknown type", []entry{{kind: 'Z', name: "x"}}, []entry{{kind: tar.TypeFifo, name: "x"}}, "type"},
	} {
		if _, err := flat(t, layer(t, c.fine...)); err != nil {
			t.Errorf("%s: the control: %v", c.what, err)
		}
		_, err := flat(t, layer(t, c.hostile...))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.what, err, c.want)
		}
	}
}

// TestNothingOnTheHost: a layer that would write and delete here, if a path were made of its names.
func TestNothingOnTheHost(t *testing.T) {
	host := t.TempDir()
	victim := filepath.Join(host, "victim")
	if err := os.WriteFile(victim, []byte("alive"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := strings.TrimPrefix(host, "/")
	l := layer(t, dir(inside+"/"), symlink("etc", host), file("etc/.wh.victim", ""), file("etc/new", "x"), link(inside+"/link", inside+"/new"))
	got, err := flat(t, l)
	if err != nil || !strings.Contains(got, inside+"/new = x (2 links)") {
		t.Errorf("in the image: %s, %v", got, err)
	}
	if b, _ := os.ReadFile(victim); string(b) != "alive" {
		t.Error("the file on the host is gone")
	}
	if names, _ := os.ReadDir(host); len(names) != 1 {
		t.Errorf("%d files on the host, 1 before", len(names))
	}
}

// bounded makes an image that has had as much as it may have, less room.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		what string
		near func(*Image)
		want string
	}{
		{"entries", func(m *Image) { m.entries = maxEntries - 1 }, "entries"},
		{"bytes", func(m *Image) { m.bytes = maxBytes - 1 }, "bytes"},
		{"text", func(m *Image) { m.text = maxText - 1 }, "names and attributes"},
	} {
		m, _ := newImage(t)
		c.near(m)
		if err := m.Layer(bytes.NewReader(layer(t, file("x", "1")))); err != nil {
			t.Errorf("%s: the control: %v", c.what, err)
		}
		if err := m.Layer(bytes.NewReader(layer(t, file("y", "2")))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	// Sizes whose sum overflows: only the header is there, the content never comes.
	var huge bytes.Buffer
	w := tar.NewWriter(&huge)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1<<63 - 1, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	if _, err := flat(t, layer(t, file("a", "1"))[:1024], huge.Bytes()); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a size of 2^63-1: %v", err)
	}
	m, _ := newImage(t)
	for n := range MaxLayers {
		if err := m.Layer(bytes.NewReader(layer(t))); err != nil {
			t.Fatalf("layer %d: %v", n+1, err)
		}
	}
	if err := m.Layer(bytes.NewReader(layer(t))); err == nil {
		t.Errorf("layer %d was taken", MaxLayers+1)
	}
}

func TestXattrs(t *testing.T) {
	m, image := newImage(t)
	l := layer(t, entry{kind: tar.TypeReg, name: "x", set: func(h *tar.Header) {
		h.PAXRecords = map[string]string{
			"SCHILY.xattr.security.capability":     "\x01\x00\x00\x02\x00\x20",
			"SCHILY.xattr.user.mine":               "v",
			"SCHILY.xattr.trusted.overlay.opaque":  "y",
			"SCHILY.xattr.com.apple.quarantine":    "q",
			"LIBARCHIVE.xattr.user.mine":           "dg==",
			"SCHILY.xattr.system.posix_acl_access": "\x02\x00\x00\x00",
		}
	}})
	if err := m.Layer(bytes.NewReader(l)); err != nil {
		t.Fatal(err)
	}
	if err := m.Finish(); err != nil {
		t.Fatal(err)
	}
	img, err := reader.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	info, err := fs.Stat(img, "x")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range info.Sys().(*reader.Stat).Xattrs {
		names = append(names, strings.TrimSuffix(name, ".")) // the reader puts a dot behind an ACL's name
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "security.capability system.posix_acl_access user.mine" {
		t.Errorf("attributes: %s", got)
	}
	if len(m.Dropped) != 2 || m.Dropped["trusted.overlay.opaque"] != 1 || m.Dropped["com.apple.quarantine"] != 1 {
		t.Errorf("dropped: %v", m.Dropped)
	}
}

func TestCutShort(t *testing.T) {
	whole := layer(t, file("a", strings.Repeat("x", 5000)), file("b", "y"))
	if _, err := flat(t, whole); err != nil {
		t.Fatal(err)
	}
	// Within a header or content; an archive may end behind an entry.
	for _, n := range []int{100, 700, 1024, 3000, 5500, 5900} {
		if _, err := flat(t, whole[:n]); err == nil {
			t.Errorf("cut to %d bytes of %d: no error", n, len(whole))
		}
	}
}

func TestNeedEnd(t *testing.T) {
	whole := layer(t, file("a", "x"), dir("b"))
	for _, c := range []struct {
		cut      int
		need, ok bool
	}{{0, true, true}, {1024, true, false}, {1024, false, true}, {512, true, false}} {
		m, _ := newImage(t)
		m.NeedEnd = c.need
		if err := m.Layer(bytes.NewReader(whole[:len(whole)-c.cut])); (err == nil) != c.ok {
			t.Errorf("%d bytes less, the end is needed: %v: %v", c.cut, c.need, err)
		}
	}
}

// FuzzLayer: no tar archive makes it panic, and what it makes has no name that
// leads out, and can be read back.
func FuzzLayer(f *testing.F) {
	for _, e := range [][]entry{
		{dir("a/"), file("a/b", "c"), symlink("l", "a"), file("l/x", "1"), link("h", "a/b"), file("a/.wh.b", "")},
		{file("a/.wh..wh..opq", ""), file("../x", ""), symlink("x", "../../.."), file("x/y", "")},
	} {
		f.Add(layer(f, e...))
	}
	f.Fuzz(func(t *testing.T, l []byte) {
		base := layer(t, dir("a/"), file("a/b", "base"), symlink("s", "/a"))
		m, image := newImage(t)
		m.bytes = maxBytes - 1<<20 // sparse files say that they are large
		if err := m.Layer(bytes.NewReader(base)); err != nil {
			t.Fatal(err)
		}
		if err := m.Layer(bytes.NewReader(l)); err != nil {
			return
		}
		if err := m.Finish(); err != nil {
			t.Fatalf("what was taken cannot be written: %v", err)
		}
		img, err := reader.Open(image)
		if err != nil {
			t.Fatal(err)
		}
		err = fs.WalkDir(img, ".", func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				_, err = fs.ReadFile(img, p)
			}
			if errors.Is(err, fs.ErrInvalid) { // io/fs has no such path: a name that is no UTF-8
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
