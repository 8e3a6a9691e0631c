package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
)

// TestGuard: a manifest by hand shares nothing of sb's own, and what its machine
// is made of is protected in its shares.
func TestGuard(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"ws/made", "ws/home", "other", "far"} {
		if err := os.MkdirAll(filepath.Join(top, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(top, "far", "disk"), filepath.Join(top, "ws", "disk")); err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(top, path) }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, home string
		share      manifest.Share
		want       []string // protected
		fault      string
	}{
		{"elsewhere", "other/home", manifest.Share{Host: at("far/..") + "/other2"}, nil, ""},
		{"parts in the share", "other/home", manifest.Share{Host: at("ws"), Protected: []string{".git/hooks"}},
			[]string{".git/hooks", "/made/box.toml", "/made/kernel", "/base", "/disk", "/console.log"}, ""},
		{"read-only", "other/home", manifest.Share{Host: at("ws"), ReadOnly: true}, nil, ""},
		{"the programs", "other/home", manifest.Share{Host: filepath.Dir(filepath.Dir(self))}, []string{"/" + filepath.Base(filepath.Dir(self))}, ""},
		{"the directory of the programs", "other/home", manifest.Share{Host: filepath.Dir(self)}, nil, "what sandboxes are made of"},
		{"our own within", "ws/home", manifest.Share{Host: at("ws")}, nil, "the guest could replace " + at("ws/home")},
		{"within our own", "ws/home", manifest.Share{Host: at("ws/home/state"), ReadOnly: true}, nil, "a directory of sb's own"},
	} {
		t.Setenv("SB_HOME", at(c.home))
		m := &manifest.Manifest{Shares: []manifest.Share{c.share}, Machine: manifest.Machine{
			Kernel: at("ws/made/kernel"), Base: at("ws/base"), Disk: at("ws/disk"), Console: at("ws/console.log")}}
		err := guard(m, at("ws/made/box.toml"))
		if (c.fault == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", c.what, err, c.fault)
		}
		if got := m.Shares[0].Protected; err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%s: protected %q, want %q", c.what, got, c.want)
		}
	}
}

// TestPlantedQEMU: what lies where a guest can write is not started.
func TestPlantedQEMU(t *testing.T) {
	ws := t.TempDir()
	for _, name := range []string{"qemu-system-x86_64", "qemu-system-aarch64"} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", ws)
	m := &manifest.Manifest{Shares: []manifest.Share{{Host: ws}}}
	if _, err := newQEMU(m); err == nil || !strings.Contains(err.Error(), "it lies in the share "+ws) {
		t.Errorf("%v", err)
	}
	m.Shares[0].ReadOnly = true
	if _, err := newQEMU(m); err == nil || strings.Contains(err.Error(), "lies in the share") {
		t.Errorf("control: %v", err) // it lacks the machine's parts
	}
}

// TestShareByLink: a link on the way to a share is one that nobody checked.
func TestShareByLink(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(top, "real", "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	if f, err := openShare(filepath.Join(top, "link", "dir")); err == nil {
		f.Close()
		t.Error("a share through a link was opened")
	} else if !strings.Contains(err.Error(), "symbolic link") {
		t.Error(err)
	}
	f, err := openShare(filepath.Join(top, "real", "dir"))
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	f.Close()
}
