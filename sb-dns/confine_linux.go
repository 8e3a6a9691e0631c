package main

import (
	"os"
	"path/filepath"
	"slices"

	"sb/lib/confine"
	"sb/lib/say"
)

// resolverFiles are those that the resolver reads, now and whenever they change.
var resolverFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"}

// confineSelf takes away what sb-dns has no use for once its wires are open: every
// program, and every file but those of the resolver. It goes on opening sockets.
func confineSelf() error {
	files, err := confine.Files(confine.View{Dial: true, Read: resolverDirs(resolverFiles)})
	if err != nil {
		return err
	}
	calls, err := confine.Calls(true, false)
	if err != nil {
		return err
	}
	for _, lacks := range []string{files, calls} {
		if lacks != "" {
			say.Warn("sb-dns is not confined by %s: this host's kernel has none", lacks)
		}
	}
	return nil
}

// resolverDirs are the directories that the files lie in and that links among
// them lead to. Who changes such a file puts a new one in its place, which a
// permission for the old one would not cover.
func resolverDirs(files []string) (dirs []string) {
	add := func(file string) {
		dir := filepath.Dir(file)
		if st, err := os.Stat(dir); err == nil && st.IsDir() && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, f := range files {
		add(f)
		if real, err := filepath.EvalSymlinks(f); err == nil {
			add(real)
		}
	}
	return dirs
}
