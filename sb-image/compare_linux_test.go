package main

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree describes every file below dir, a line each, with all that stat, its
// attributes and its content say. Names of one file are one group.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	first := map[uint64]string{} // the first name of each file, in order
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%o %d:%d mtime=%d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		if !d.IsDir() {
			if first[st.Ino] == "" {
				first[st.Ino] = rel
			}
			line += fmt.Sprintf(" links=%d size=%d same=%q", st.Nlink, st.Size, first[st.Ino])
		}
		switch d.Type() {
		case 0:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(b))
		case fs.ModeSymlink:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" -> %q", to)
		case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
			line += fmt.Sprintf(" %d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
		}
		all[rel] = line + xattrsOf(t, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func xattrsOf(t *testing.T, p string) string {
	t.Helper()
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(p, list)
	if err != nil {
		t.Fatalf("list the attributes of %s: %v", p, err)
	}
	names := strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00")
	sort.Strings(names)
	out := ""
	for _, name := range names {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(p, name, value)
		if err != nil {
			t.Fatalf("read %s of %s: %v", name, p, err)
		}
		out += fmt.Sprintf(" %s=%x", name, value[:n])
	}
	return out
}

// mounted mounts an image's file system, for root.
func mounted(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", file, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	t.Cleanup(func() { unix.Unmount(dir, 0) })
	return dir
}

// richLayers have everything that a layer can hold, and everything that a layer
// can do to those below it.
func richLayers(t *testing.T) [][]byte {
	long := strings.Repeat("long-", 50) + "name"
	deep := strings.Repeat(long[:100]+"/", 12)
	caps := tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/ping", Mode: 0o755, PAXRecords: map[string]string{
		"SCHILY.xattr.security.capability":     "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"SCHILY.xattr.user.comment":            "some\nbytes\x00here",
		"SCHILY.xattr.system.posix_acl_access": "\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x02\x00\x05\x00\xe8\x03\x00\x00\x04\x00\x05\x00\xff\xff\xff\xff\x10\x00\x05\x00\xff\xff\xff\xff\x20\x00\x05\x00\xff\xff\xff\xff",
	}}, "ELF"}
	owned := reg("home/me/secret", "mine", 0o600)
	owned.Uid, owned.Gid = 1000, 70000
	null := other(tar.TypeChar, "dev/null", "")
	null.Devmajor, null.Devminor, null.Mode = 1, 3, 0o666
	disk := other(tar.TypeBlock, "dev/disk", "")
	disk.Devmajor, disk.Devminor = 259, 70000
	old := reg("etc/old", "1970", 0o644)
	old.ModTime = time.Unix(1, 5)
	base := tarOf(t,
		other(tar.TypeDir, "./", ""), other(tar.TypeDir, "usr/", ""), other(tar.TypeDir, "usr/bin/", ""), other(tar.TypeDir, "usr/lib/", ""),
		other(tar.TypeSymlink, "bin", "usr/bin"), other(tar.TypeSymlink, "lib", "/usr/lib"),
		caps, reg("usr/bin/su", "root", 0o4755), reg("usr/bin/wall", "tty", 0o2755),
		other(tar.TypeDir, "etc/", ""), reg("etc/gone", "1", 0o644), reg("etc/kept", "2", 0o644), old,
		other(tar.TypeDir, "etc/d/", ""), reg("etc/d/1", "1", 0o644), reg("etc/d/2", "2", 0o644),
		other(tar.TypeDir, "opaque/", ""), reg("opaque/below", "b", 0o644), other(tar.TypeDir, "opaque/dir/", ""), reg("opaque/dir/below", "b", 0o644),
		other(tar.TypeDir, "home/", ""), other(tar.TypeDir, "home/me/", ""), owned,
		other(tar.TypeDir, "dev/", ""), null, disk, other(tar.TypeFifo, "dev/fifo", ""),
		other(tar.TypeDir, "tmp/", ""), reg(long, "long", 0o644), reg("bytes \xff\xfe\n", "raw", 0o644),
		reg("big", strings.Repeat("0123456789", 200_000), 0o644), reg("empty", "", 0o444), reg("block", strings.Repeat("b", 4096), 0o644),
		other(tar.TypeLink, "big2", "big"), other(tar.TypeLink, "etc/kept2", "etc/kept"),
		reg("turns-dir", "file", 0o644), other(tar.TypeDir, "turns-file/", ""), reg("turns-file/x", "x", 0o644), other(tar.TypeSymlink, "turns-real", "usr"),
	)
	for n := range 12 { // parents first, as builders write them
		base = append(base[:len(base)-1024], tarOf(t, other(tar.TypeDir, deep[:(n+1)*101], ""))...)
	}
	base = append(base[:len(base)-1024], tarOf(t, reg(deep+"leaf", "deep", 0o640))...)
	sticky := other(tar.TypeDir, "tmp/", "")
	sticky.Mode = 0o1777
	middle := tarOf(t,
		other(tar.TypeDir, "etc/", ""), reg("etc/.wh.gone", "", 0), other(tar.TypeDir, "etc/d/", ""), reg("etc/d/.wh.1", "", 0), reg("etc/d/3", "3", 0o644),
		other(tar.TypeDir, "opaque/", ""), reg("opaque/.wh..wh..opq", "", 0), reg("opaque/above", "a", 0o644),
		sticky, other(tar.TypeDir, "turns-dir/", ""), reg("turns-dir/y", "y", 0o644), reg("turns-file", "file now", 0o644),
		other(tar.TypeDir, "turns-real/", ""), reg("turns-real/z", "z", 0o644),
		other(tar.TypeDir, "usr/", ""), other(tar.TypeDir, "usr/bin/", ""), other(tar.TypeLink, "usr/bin/big3", "big"), reg("etc/kept", "other content", 0o600),
	)
	top := tarOf(t, reg("lib/through-a-link", "t", 0o644), reg("bin/also", "u", 0o755), reg("etc/gone", "again", 0o644))
	return [][]byte{base, middle, top}
}

// TestAgainstUmoci pulls an image from a registry and compares its file system,
// as the kernel mounts it, with what another program makes of the same layers.
func TestAgainstUmoci(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root restores owners and devices, and mounts")
	}
	layers := richLayers(t)
	l := newLayout(t)
	forUmoci, config := l.image("amd64", gzipLayer(layers[0]), gzipLayer(layers[1]), gzipLayer(layers[2]))
	l.tag("plain", forUmoci)
	mixed, same := l.image("amd64", gzipLayer(layers[0]), zstdLayer(layers[1]), plainLayer(layers[2]))
	l.tag("mixed", mixed)
	if same != config {
		t.Fatal("the compression changed the configuration")
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	if out, err := exec.Command("umoci", "unpack", "--image", l.dir+":plain", bundle).CombinedOutput(); err != nil {
		t.Fatalf("umoci: %v\n%s", err, out)
	}
	r := newRegistry(t, nil)
	r.push(l, mixed, "rich:latest")
	s := newStore(t)
	digest, err := pulled(t, s, r.host+"/rich", "linux/amd64")
	if err != nil || digest != config {
		t.Fatalf("pull: %s, %v; want %s", digest, err, config)
	}
	want, got := tree(t, filepath.Join(bundle, "rootfs")), tree(t, mounted(t, s.imageFile(digest, "erofs")))
	if len(want) < 50 {
		t.Fatalf("only %d files to compare", len(want))
	}
	for p, w := range want {
		if got[p] != w {
			t.Errorf("%q:\n got %s\nwant %s", p, got[p], w)
		}
	}
	for p := range got {
		if want[p] == "" {
			t.Errorf("%q: should not be there", p)
		}
	}
}
