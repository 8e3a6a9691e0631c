package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/keep"
	"sb/sb-run/repo"
)

// clonedFiles is what of a git directory makes a clone. All else has no business in
// the guest: a configuration may have a token in an address or a header, a log may
// name it, and git-crypt keeps its key there.
var clonedFiles = []string{"HEAD", "objects", "refs", "packed-refs", "shallow", "modules"}

// hideFromClone are the patterns of what the guest must not see of what it clones.
func hideFromClone(r *repo.Repo) []string {
	if r.Empty {
		return []string{"/.git"} // the files beside it are copied
	}
	hidden := []string{}
	for _, pattern := range allBut(clonedFiles) {
		hidden = append(hidden, "/"+pattern)
	}
	for _, dir := range submodules(r.Common) {
		entries, _ := os.ReadDir(filepath.Join(r.Common, dir))
		for _, e := range entries {
			if !slices.Contains(clonedFiles, e.Name()) {
				hidden = append(hidden, "/"+inSubmodule(dir)+"/"+keep.Escape(e.Name()))
			}
		}
	}
	slices.Sort(hidden)
	return slices.Compact(hidden)
}

// allBut are patterns of all names but some, as path.Match has them: of those that
// leave the given ones at some letter, end within one, or go on behind one.
func allBut(names []string) (patterns []string) {
	next := map[string]string{} // letters by what comes before them
	for _, name := range names {
		name = strings.ToLower(name) // as the share has patterns and names
		for i := range name {
			if !strings.Contains(next[name[:i]], name[i:i+1]) {
				next[name[:i]] += strings.ReplaceAll(name[i:i+1], "-", `\-`)
			}
		}
	}
	for before, letters := range next {
		patterns = append(patterns, before+"[^"+letters+"]*")
		if before != "" && !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, before) }) {
			patterns = append(patterns, before)
		}
	}
	for _, name := range names {
		if next[strings.ToLower(name)] == "" {
			patterns = append(patterns, strings.ToLower(name)+"?*")
		}
	}
	slices.Sort(patterns)
	return patterns
}

// The bounds of a look for submodules: directories, and how deep their names go.
const (
	maxModules    = 10_000
	maxModuleDeep = 8
)

// submodules are the git directories of submodules in one, by their paths in it.
func submodules(common string) (dirs []string) {
	left := maxModules
	filepath.WalkDir(filepath.Join(common, "modules"), func(path string, d fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil || !d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(common, path)
		if err != nil || strings.Count(rel, "/") > maxModuleDeep {
			return fs.SkipDir
		}
		if _, err := os.Lstat(filepath.Join(path, "objects")); err == nil && rel != "modules" {
			dirs = append(dirs, rel)
		}
		if slices.Contains(dirs, filepath.Dir(rel)) && filepath.Base(rel) != "modules" {
			return fs.SkipDir // a git directory's own
		}
		return nil
	})
	return dirs
}

// inSubmodule is a pattern of a submodule's git directory: one for all those of as
// many names as cannot be a branch's directory (modules/a/refs/heads).
func inSubmodule(dir string) string {
	switch strings.Count(dir, "/") {
	case 1:
		return "modules/*"
	case 2:
		return "modules/*/*"
	}
	return keep.Escape(dir)
}
