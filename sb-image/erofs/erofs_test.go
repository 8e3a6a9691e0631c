package erofs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	reader "github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"
)

// builder makes trees for the tests.
type builder struct {
	t *testing.T
	w *Writer
}

func (b builder) file(size int64, set func(*Inode)) *Inode {
	i := &Inode{Mode: TypeFile | 0o644}
	if set != nil {
		set(i)
	}
	if err := b.w.SetContent(i, pattern(size), size); err != nil {
		b.t.Fatal(err)
	}
	return i
}

// pattern is content that differs at every offset and for every size.
func pattern(size int64) io.Reader {
	block := make([]byte, size)
	for n := range block {
		block[n] = byte(n>>8) ^ byte(n) ^ byte(size)
	}
	return bytes.NewReader(block)
}

func dir(entries map[string]*Inode) *Inode {
	d := &Inode{Mode: TypeDir | 0o755, Children: map[string]Entry{}}
	for name, i := range entries {
		d.Children[name] = Entry{Inode: i}
	}
	return d
}

// write makes an image of the tree that fill returns, and has fsck.erofs look at it.
func write(t *testing.T, fill func(builder) *Inode) string {
	t.Helper()
	image, spool := create(t, "image"), create(t, "spool")
	w := NewWriter(image, spool)
	if err := w.Finish(fill(builder{t, w})); err != nil {
		t.Fatal(err)
	}
	st, err := image.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if st.Size()%blockSize != 0 || st.Size() != int64(w.block)*blockSize {
		t.Errorf("the image has %d bytes and %d blocks", st.Size(), w.block)
	}
	if out, err := exec.Command("fsck.erofs", image.Name()).CombinedOutput(); err != nil {
		t.Errorf("fsck.erofs (erofs-utils): %v\n%s", err, out)
	}
	return image.Name()
}

func create(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sizes lie around all that the format treats differently.
var sizes = []int64{0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 4096 + 2048, 4096 + 2049, 3*4096 - 1, 1 << 20, 1<<20 + 5}

func everyKind(b builder) *Inode {
	files := map[string]*Inode{}
	for _, s := range sizes {
		files[fmt.Sprintf("f%d", s)] = b.file(s, func(i *Inode) { i.Mtime, i.MtimeNsec = s, uint32(s) })
	}
	twice := b.file(100, nil)
	files["link one"], files["link two"] = twice, twice
	files["set"] = b.file(3, func(i *Inode) { i.Mode = TypeFile | 0o7751; i.UID, i.GID = 1<<31+5, 1<<32-2 })
	files["old"] = b.file(3, func(i *Inode) { i.Mtime, i.MtimeNsec = -12345, 999999999 })
	files["far"] = b.file(3, func(i *Inode) { i.Mtime = 1 << 33 })
	big := strings.Repeat("\x00\xff", 1800)
	files["attrs"] = b.file(2048, func(i *Inode) {
		if err := i.SetXattrs([]Xattr{
			{"security.capability", "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
			{"user." + strings.Repeat("n", 250), big}, {"user.empty", ""}, {"trusted.x", "y"},
		}); err != nil {
			b.t.Fatal(err)
		}
	})
	files["fifo"] = &Inode{Mode: TypeFIFO | 0o600}
	files["socket"] = &Inode{Mode: TypeSocket | 0o700}
	files["null"] = &Inode{Mode: TypeChar | 0o666, Device: device(b.t, 1, 3)}
	files["disk"] = &Inode{Mode: TypeBlock | 0o660, Device: device(b.t, 259, 70000)}
	files["short"] = &Inode{Mode: TypeSymlink | 0o777, Target: "x"}
	files["long"] = &Inode{Mode: TypeSymlink | 0o777, Target: strings.Repeat("t", 4095)}
	files["bytes \xff\xfe\n\x1b[2J"] = b.file(1, nil)
	files[strings.Repeat("n", 255)] = b.file(1, nil)
	many := map[string]*Inode{}
	for n := range 3000 {
		many[fmt.Sprintf("%s-%04d", strings.Repeat("m", n%40), n)] = twice
	}
	files["many"], files["empty"], files["deep"] = dir(many), dir(nil), dir(map[string]*Inode{"er": dir(map[string]*Inode{"x": b.file(7, nil)})})
	files["empty"].Mode = TypeDir | 0o1777
	return dir(files)
}

func device(t *testing.T, major, minor int64) uint32 {
	d, err := Device(major, minor)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestReadBack reads the image with another implementation of the format.
func TestReadBack(t *testing.T) {
	var root *Inode
	name := write(t, func(b builder) *Inode { root = everyKind(b); return root })
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = fs.WalkDir(img, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		n++
		info, err := d.Info()
		if err != nil {
			return err
		}
		same(t, img, p, find(root, p), info.Sys().(*reader.Stat))
		return nil
	})
	if want := count(root); err != nil || n != want {
		t.Errorf("%d entries, %v; want %d", n, err, want)
	}
}

func find(i *Inode, p string) *Inode {
	for name := range strings.SplitSeq(p, "/") {
		if name != "." {
			i = i.Children[name].Inode
		}
	}
	return i
}

func count(i *Inode) int {
	n := 1
	for _, e := range i.Children {
		n += count(e.Inode)
	}
	return n
}

func same(t *testing.T, img fs.FS, p string, want *Inode, got *reader.Stat) {
	t.Helper()
	links := want.links
	if got.UID != want.UID || got.GID != want.GID || int64(got.Mtime) != want.Mtime || got.MtimeNs != want.MtimeNsec ||
		uint32(got.Nlink) != links || uint64(got.Ino) != want.nid {
		t.Errorf("%q: got %+v, want %+v", p, got, want)
	}
	if perm := uint32(got.Mode.Perm()); perm != want.Mode&0o777 ||
		got.Mode&fs.ModeSetuid != 0 != (want.Mode&0o4000 != 0) || got.Mode&fs.ModeSticky != 0 != (want.Mode&0o1000 != 0) {
		t.Errorf("%q: mode %v, want %o", p, got.Mode, want.Mode)
	}
	if len(got.Xattrs) != len(want.Xattrs) {
		t.Errorf("%q: %d attributes, want %d", p, len(got.Xattrs), len(want.Xattrs))
	}
	for _, x := range want.Xattrs {
		if v, ok := got.Xattrs[x.Name]; !ok || v != x.Value {
			t.Errorf("%q: attribute %s is %q", p, x.Name, v)
		}
	}
	switch want.Type() {
	case TypeFile:
		b, err := fs.ReadFile(img, p)
		wantBytes, _ := io.ReadAll(pattern(want.size))
		if err != nil || !bytes.Equal(b, wantBytes) {
			t.Errorf("%q: %d bytes, %v; want %d", p, len(b), err, want.size)
		}
	case TypeSymlink:
		target, err := fs.ReadLink(img, p)
		if err != nil || target != want.Target {
			t.Errorf("%q leads to %q, %v", p, target, err)
		}
	case TypeChar, TypeBlock:
		if got.Rdev != want.Device {
			t.Errorf("%q: device %#x, want %#x", p, got.Rdev, want.Device)
		}
	}
}

// TestMount has the kernel read the image, where the test may mount.
func TestMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	var root *Inode
	name := write(t, func(b builder) *Inode { root = everyKind(b); return root })
	mnt := t.TempDir()
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", name, mnt).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	defer unix.Unmount(mnt, 0)
	n := 0
	err := filepath.WalkDir(mnt, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		n++
		rel, _ := filepath.Rel(mnt, p)
		sameStat(t, p, find(root, rel))
		return nil
	})
	if want := count(root); err != nil || n != want {
		t.Errorf("%d entries, %v; want %d", n, err, want)
	}
}

func sameStat(t *testing.T, p string, want *Inode) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		t.Errorf("%q: %v", p, err)
		return
	}
	device := uint32(0)
	if typ := want.Type(); typ == TypeChar || typ == TypeBlock {
		device = want.Device
		if d, err := Device(int64(unix.Major(uint64(st.Rdev))), int64(unix.Minor(uint64(st.Rdev)))); err != nil || d != device {
			t.Errorf("%q: device %d:%d", p, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
		}
	}
	if uint32(st.Mode) != want.Mode || st.Uid != want.UID || st.Gid != want.GID || st.Size != want.size ||
		int64(st.Mtim.Sec) != want.Mtime || int64(st.Mtim.Nsec) != int64(want.MtimeNsec) || uint64(st.Nlink) != uint64(want.links) || st.Ino != want.nid {
		t.Errorf("%q: got %+v, want %+v", p, st, want)
	}
	for _, x := range want.Xattrs {
		buf := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(p, x.Name, buf)
		if err != nil || string(buf[:max(n, 0)]) != x.Value {
			t.Errorf("%q: attribute %s: %d bytes, %v", p, x.Name, n, err)
		}
	}
	switch want.Type() {
	case TypeFile:
		b, err := os.ReadFile(p)
		wantBytes, _ := io.ReadAll(pattern(want.size))
		if err != nil || !bytes.Equal(b, wantBytes) {
			t.Errorf("%q: %d bytes, %v; want %d", p, len(b), err, want.size)
		}
	case TypeSymlink:
		if target, err := os.Readlink(p); err != nil || target != want.Target {
			t.Errorf("%q leads to %q, %v", p, target, err)
		}
	}
}

// TestReplaced checks that content which no name leads to any more takes no room.
func TestReplaced(t *testing.T) {
	const size = 8 << 20
	name := write(t, func(b builder) *Inode {
		b.file(size, nil)
		kept := b.file(size, nil)
		b.file(size+100, nil)
		return dir(map[string]*Inode{"kept": kept})
	})
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	if st.Size < 3*size {
		t.Fatalf("the image has %d bytes: nothing was replaced", st.Size)
	}
	if used := st.Blocks * 512; used > size+1<<20 {
		t.Errorf("the image takes %d bytes, of which %d are in use", used, size)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := io.ReadAll(pattern(size))
	if got, err := fs.ReadFile(img, "kept"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was kept is damaged: %v", err)
	}
}

func TestSameBytes(t *testing.T) {
	var images [2][]byte
	for n := range images {
		b, err := os.ReadFile(write(t, everyKind))
		if err != nil {
			t.Fatal(err)
		}
		images[n] = b
	}
	if len(images[0]) == 0 || !bytes.Equal(images[0], images[1]) {
		t.Error("the same calls made other bytes")
	}
}

func TestXattrRefusals(t *testing.T) {
	long := strings.Repeat("x", 0x10000)
	for _, list := range [][]Xattr{
		{{"com.apple.quarantine", "x"}},
		{{"system.posix_acl_access.more", "x"}},
		{{"user." + strings.Repeat("n", 256), "x"}},
		{{"user.x", long}},
		{{"user.1", long[1:]}, {"user.2", long[1:]}, {"user.3", long[1:]}, {"user.4", long[1:]}, {"user.5", long[1:]}},
	} {
		control := []Xattr{{"user.x", long[1:]}, {"system.posix_acl_access", "x"}, {"user." + strings.Repeat("n", 255), "x"}}
		i := &Inode{}
		if err := i.SetXattrs(slices.Clone(control)); err != nil || len(i.Xattrs) != 3 {
			t.Errorf("control: %v", err)
		}
		if err := i.SetXattrs(list); err == nil || len(i.Xattrs) != 3 {
			t.Errorf("%.40s: no error, or the old ones are lost", list[0].Name)
		}
	}
}

func TestDeviceRefusals(t *testing.T) {
	for _, d := range [][2]int64{{-1, 0}, {0, -1}, {4096, 0}, {0, 1 << 20}} {
		if _, err := Device(d[0], d[1]); err == nil {
			t.Errorf("device %d:%d was taken", d[0], d[1])
		}
	}
	if _, err := Device(4095, 1<<20-1); err != nil {
		t.Error(err)
	}
}

func TestFinishRefusals(t *testing.T) {
	shared := dir(nil)
	for what, root := range map[string]*Inode{
		"a root that is a file":     {Mode: TypeFile},
		"a directory in two places": dir(map[string]*Inode{"a": shared, "b": shared}),
		"an empty name":             dir(map[string]*Inode{"": dir(nil)}),
		"a long name":               dir(map[string]*Inode{strings.Repeat("n", 256): dir(nil)}),
	} {
		if err := NewWriter(create(t, "image"), create(t, "spool")).Finish(root); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestShortContent(t *testing.T) {
	for _, size := range []int64{10, 5000, 4096 + 3000} {
		w := NewWriter(create(t, "image"), create(t, "spool"))
		if err := w.SetContent(&Inode{Mode: TypeFile}, pattern(size), size); err != nil {
			t.Errorf("control: %v", err)
		}
		if err := w.SetContent(&Inode{Mode: TypeFile}, pattern(size-1), size); err != io.ErrUnexpectedEOF {
			t.Errorf("%d bytes of %d: %v", size-1, size, err)
		}
		if err := w.Finish(dir(nil)); err == nil {
			t.Error("the image was finished all the same")
		}
	}
}
