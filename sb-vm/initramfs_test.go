package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// besideUs puts a guest program where this one looks for it.
func besideUs(t *testing.T, text string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(self), "sb-guest")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestInitramfs unpacks the file with the cpio program and compares.
func TestInitramfs(t *testing.T) {
	program, err := exec.LookPath("cpio")
	if err != nil {
		t.Fatalf("%v: install cpio", err)
	}
	kernel := t.TempDir()
	modules := bytes.Repeat([]byte("modules!"), 100)
	if err := os.WriteFile(filepath.Join(kernel, "modules.cpio"), modules, 0o600); err != nil {
		t.Fatal(err)
	}
	init := text(1_000_001)
	besideUs(t, string(init))
	path, err := initramfs(kernel)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, ok := bytes.CutSuffix(all, modules)
	if !ok {
		t.Fatal("the modules do not come behind it as they are")
	}
	list := exec.Command(program, "--list", "--verbose", "--numeric-uid-gid", "--quiet")
	list.Stdin = bytes.NewReader(first)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for l := range strings.Lines(string(out)) {
		f := strings.Fields(l)
		got = append(got, strings.Join(append(f[:1:1], f[2], f[3], f[4], f[len(f)-1]), " "))
	}
	want := []string{"drwxr-xr-x 0 0 0 dev", "drwxr-xr-x 0 0 0 proc", "drwxr-xr-x 0 0 0 sys",
		"crw------- 0 0 5, dev/console", "crw-rw-rw- 0 0 1, dev/null", "-rwxr-xr-x 0 0 1000001 init"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	unpack := exec.Command(program, "--extract", "--quiet", "--no-absolute-filenames", "init")
	unpack.Dir, unpack.Stdin = t.TempDir(), bytes.NewReader(first)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(unpack.Dir, "init")); err != nil || !bytes.Equal(b, init) {
		t.Errorf("init: %d bytes, %v", len(b), err)
	}
}

// One guest program is one file, made once; nothing partial is ever left.
func TestInitramfsKept(t *testing.T) {
	kernel := t.TempDir()
	besideUs(t, "one")
	one, err := initramfs(kernel)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(one)
	again, err := initramfs(kernel)
	after, _ := os.Stat(again)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("made a second time: %s, then %s (%v)", one, again, err)
	}
	besideUs(t, "two")
	two, err := initramfs(kernel)
	if err != nil || two == one {
		t.Errorf("another program, the same file %s (%v)", two, err)
	}
	besideUs(t, "three")
	// A directory in its place: the last step of publishing fails.
	if err := os.Mkdir(filepath.Join(kernel, "modules.cpio"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := initramfs(kernel); err == nil {
		t.Error("modules that cannot be read: no error")
	}
	if got := names(t, kernel); strings.Count(got, "initramfs-") != 2 || strings.Contains(got, ".initramfs") {
		t.Errorf("left behind: %s", got)
	}
}

func TestGuestProgramMissing(t *testing.T) {
	if _, err := guestProgram(); err == nil || say.Code(err) != say.CodeFailed {
		t.Errorf("not there: %v", err)
	}
	besideUs(t, "x")
	if path, err := guestProgram(); err != nil || filepath.Base(path) != "sb-guest" {
		t.Errorf("there: %s, %v", path, err)
	}
}

// Before a machine is started everything that it needs is there, and the image
// is not removed while it runs.
func TestFindParts(t *testing.T) {
	dir := t.TempDir()
	besideUs(t, "x")
	m := manifestMachine(dir)
	for _, step := range []struct{ missing, file, hint string }{
		{"the kernel", "kernel/vmlinux", "sb-image kernel install"},
		{"the writable disk", "disk", "sb-image disk"},
		{"the base image", "base", "sb-image pull"},
	} {
		_, err := findParts(m)
		if err == nil || !strings.Contains(err.Error(), step.missing) || !strings.Contains(hints(err), step.hint) {
			t.Errorf("without %s: %v, hints %s", step.missing, err, hints(err))
		}
		path := filepath.Join(dir, step.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := findParts(m)
	if err != nil {
		t.Fatal(err)
	}
	remover, err := os.Open(m.Base)
	if err != nil {
		t.Fatal(err)
	}
	defer remover.Close()
	if err := unix.Flock(int(remover.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("the image of a machine can be locked for removal: %v", err)
	}
	p.base.Close()
	if err := unix.Flock(int(remover.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("and after it: %v", err)
	}
	if _, err := findParts(m); err == nil || !strings.Contains(err.Error(), "lock the base image") {
		t.Errorf("an image that is being removed: %v", err)
	}
}
