package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/manifest"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestArgv holds the command line of QEMU to testdata/qemu-*.txt, one word a
// line: a device or an option more or less is seen there.
func TestArgv(t *testing.T) {
	for _, c := range []struct {
		arch, accel string
		shares      int
		how         start
	}{{"amd64", "kvm", 0, cold}, {"amd64", "tcg", 2, cold}, {"arm64", "kvm", 0, cold}, {"arm64", "tcg", 2, cold},
		{"amd64", "tcg", 5, save}, {"amd64", "kvm", 1, restore}} {
		q := &qemu{parts: &parts{kernel: "/data/kernel/k/vmlinux", initramfs: "/data/kernel/k/initramfs-0.cpio"},
			m: &manifest.Manifest{Name: "shell-1", Network: manifest.Network{MTU: 1500}, Machine: manifest.Machine{
				CPUs: 2, Memory: 2<<30 + 1, Base: "/data/images/a.erofs", Disk: "/state/run/with,comma/disk"},
				Shares: make([]manifest.Share, c.shares)},
			program: "/usr/bin/qemu", arch: c.arch, accel: c.accel, saved: "/data/templates/.new,x/memory"}
		got := strings.Join(q.argv(c.how), "\n") + "\n"
		file := filepath.Join("testdata", "qemu-"+c.arch+"-"+c.accel+map[start]string{save: "-save", restore: "-restore"}[c.how]+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || got != string(want) {
			t.Errorf("%s (%v): the command line is\n%s\nwant\n%s", file, err, got, want)
		}
	}
}

// What QEMU sees of the file system is what the manifest names and its program.
func TestFiles(t *testing.T) {
	q := &qemu{parts: &parts{kernel: "/k/vmlinux", initramfs: "/k/i.cpio"}, program: "/bin/sh", accel: "tcg",
		m: &manifest.Manifest{Machine: manifest.Machine{Base: "/b", Disk: "/d"}}}
	v, err := q.files(cold)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(v.Write, " "); got != "/d /dev/null" {
		t.Errorf("it writes %s", got)
	}
	if len(v.Exec) != 2 || v.Exec[0] != "/bin/sh" || !strings.Contains(v.Exec[1], "ld-linux") {
		t.Errorf("it starts %q", v.Exec)
	}
	if got := strings.Join(v.Read[:3], " "); got != "/b /k/vmlinux /k/i.cpio" {
		t.Errorf("it reads %s", got)
	}
	for _, path := range v.Read[3:] {
		if !strings.HasPrefix(path, "/usr/") && !strings.HasPrefix(path, "/lib") && path != "/etc/ld.so.cache" {
			t.Errorf("it reads %s", path)
		}
	}
	q.accel = "kvm"
	if v, err = q.files(cold); err != nil || v.Write[len(v.Write)-1] != "/dev/kvm" {
		t.Errorf("with kvm it writes %q (%v)", v.Write, err)
	}
	q.program = v.Exec[1] // the loader itself needs none
	if _, err := q.files(cold); err == nil || !strings.Contains(err.Error(), "dynamic loader") {
		t.Errorf("a program without a loader: %v", err)
	}
}

func TestNoQEMU(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := newQEMU(&manifest.Manifest{})
	if err == nil || !strings.Contains(err.Error(), "find QEMU") || !strings.Contains(hints(err), "install the package qemu-system-") {
		t.Errorf("%v, hints %s", err, hints(err))
	}
}
