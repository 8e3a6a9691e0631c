package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk pulls onto a file system that is too small.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a small file system")
	}
	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(home, unix.MNT_DETACH)
	t.Setenv("SB_HOME", home)
	s, err := openStore()
	if err != nil {
		t.Fatal(err)
	}
	if _, digest := pullTar(t, s, "fits", strings.Repeat("x", 100_000)); !exists(s.imageFile(digest, "erofs")) {
		t.Error("the control is not there")
	} else if _, _, code := result(t, "rm", digest); code != 0 {
		t.Error("the control stays")
	}
	file := filepath.Join(t.TempDir(), "large.tar")
	if err := os.WriteFile(file, small(t, "large", strings.Repeat("x", 3<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := result(t, "pull", "tar:"+file)
	if code != 1 || out != "" || !strings.Contains(stderr, "no space left on device") {
		t.Errorf("%q, %q, code %d", out, stderr, code)
	}
	s.mustBeEmpty(t)
}
