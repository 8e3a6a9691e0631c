package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/sb-run/repo"
)

// guardPaths protects and shadows what is so in every workspace, and protects what of
// this one the host would find in such a place by a link, or by git's configuration.
func guardPaths(s *manifest.Share) {
	for _, g := range guardedPaths {
		if g.own {
			s.Shadowed = append(s.Shadowed, g.path)
		} else {
			s.Protected = append(s.Protected, g.path)
		}
		s.Protected = append(s.Protected, linked(s.Host, g.path)...)
	}
	// A file there leads git to a repository elsewhere. As long as it is one it
	// must stay as it is; a directory must stay writable.
	if st, err := os.Lstat(filepath.Join(s.Host, ".git")); err == nil && !st.IsDir() {
		s.Protected = append(s.Protected, "/.git")
	}
	if isBare(s.Host) {
		s.Protected = append(s.Protected, "/config", "/config.worktree", "/hooks", "/commondir", "/remotes", "/branches", "/objects/info/alternates")
	}
	for _, path := range repo.Runs(s.Host) {
		// Installing packages writes .husky, and it is listed at the end.
		if path == ".husky" || strings.HasPrefix(path, ".husky/") {
			continue
		}
		s.Protected = append(append(s.Protected, "/"+keep.Escape(path)), linkedPath(s.Host, path)...)
	}
	slices.Sort(s.Protected)
	s.Protected = slices.Compact(s.Protected)
}

// isBare reports whether git takes a directory itself for a repository.
func isBare(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// maxLinked is how many entries of a guarded directory are looked at for links.
const maxLinked = 2000

// linked are the patterns of what a guarded path of dir leads to in dir by symbolic links
// of the host's: rules are about names.
func linked(dir, pattern string) (patterns []string) {
	path, rest := beforeGlob(strings.TrimPrefix(pattern, "/"))
	if rest == "" {
		return linkedPath(dir, path)
	}
	if found := keep.Linked(dir, path); len(found) > 0 {
		patterns = append(patterns, found[len(found)-1]+"/"+rest)
	}
	paths, _ := filepath.Glob(filepath.Join(keep.Escape(dir), pattern))
	for _, path := range paths[:min(len(paths), maxLinked)] {
		if rel, err := filepath.Rel(dir, path); err == nil {
			patterns = append(patterns, linkedPath(dir, rel)...)
		}
	}
	return patterns
}

// linkedPath is linked for a path, and what lies in it.
func linkedPath(dir, path string) []string {
	patterns := keep.Linked(dir, path)
	left := maxLinked
	// With the slash, so that a directory is looked into through a link too.
	filepath.WalkDir(filepath.Join(dir, path)+"/", func(at string, e fs.DirEntry, err error) error {
		if left--; err != nil || left < 0 {
			return filepath.SkipAll
		}
		if rel, err := filepath.Rel(dir, at); err == nil && e.Type()&fs.ModeSymlink != 0 {
			patterns = append(patterns, keep.Linked(dir, rel)...)
		}
		return nil
	})
	return patterns
}

// beforeGlob cuts a pattern before its first component with a glob.
func beforeGlob(pattern string) (path, rest string) {
	before, _, found := strings.Cut(pattern, "*")
	if !found {
		return pattern, ""
	}
	cut := strings.LastIndex(before, "/") + 1
	return strings.TrimSuffix(pattern[:cut], "/"), pattern[cut:]
}
