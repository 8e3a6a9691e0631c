// Package keep says what of the host no share may hand to its guest: the
// directories of sb itself, which hold the user's rules and the logs, and the
// files that a sandbox is made of, which run or are read outside of it.
//
// A path leads through names: each symbolic link on the way and the file in the
// end. Whoever can change one of them decides what is found there, so all of
// them count, and so do the directories above each.
package keep

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/say"
)

// Ours are the directories of sb itself, by which a guest that is given one of
// them could act on its own sandbox or the next.
func Ours() (paths []string) {
	for _, dir := range []func() (string, error){dirs.Config, dirs.Data, dirs.State, dirs.Runtime} {
		if path, err := dir(); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// Refuse is why host may not be shared, or nil: it lies in a directory of ours,
// or one of ours is found through it. What cannot be written may hold ours, if
// the share hides it: nothing above can be renamed there. Nor where all names of
// it are hidden as paths, which Hide does.
func Refuse(host string, writable bool, ours []string, hidden ...string) error {
	real := names(host)
	for _, dir := range ours {
		if _, in := below(real[len(real)-1], dir); in {
			return say.WithHint(fmt.Errorf("it lies in %s, a directory of sb's own", dir), "share another directory")
		}
		if !writable {
			continue
		}
		for _, name := range names(dir) {
			if rel, in := below(name, host); in && !slices.Contains(hidden, "/"+Escape(rel)) {
				return say.WithHint(fmt.Errorf("the guest could replace %s, a directory of sb's own that is found through it", dir),
					"share a directory without it, or set SB_HOME to one outside")
			}
		}
	}
	return nil
}

// Protect has each share that can be written keep the guest from changing what
// it has of paths, and returns those names. A share that is one of them is
// refused. A path that is not there yet counts as if it were.
func Protect(shares []manifest.Share, paths ...string) (added []string, err error) {
	for i := range shares {
		s := &shares[i]
		if s.ReadOnly {
			continue
		}
		for _, path := range paths {
			for _, name := range names(path) {
				rel, in := below(name, s.Host)
				if in && rel == "" {
					return nil, say.WithHint(fmt.Errorf("share %s: what sandboxes are made of is found in it (%s), and the guest could replace that", s.Host, path),
						"share another directory, or this one read-only")
				}
				if pattern := "/" + Escape(rel); in && !slices.Contains(s.Protected, pattern) {
					s.Protected = append(s.Protected[:len(s.Protected):len(s.Protected)], pattern)
					added = append(added, name)
				}
			}
		}
	}
	return added, nil
}

// Hide hides what a share has of paths: all names of each, so that none can be
// replaced. A path that is not there yet counts as if it were.
func Hide(s *manifest.Share, paths ...string) {
	for _, path := range paths {
		for _, name := range names(path) {
			rel, in := below(name, s.Host)
			if pattern := "/" + Escape(rel); in && rel != "" && !slices.Contains(s.Hidden, pattern) {
				s.Hidden = append(s.Hidden, pattern)
			}
		}
	}
}

// Inside reports whether one of the shares that can be written has path, and
// which.
func Inside(shares []manifest.Share, path string) (host string, ok bool) {
	for _, s := range shares {
		for _, name := range names(path) {
			if _, in := below(name, s.Host); in && !s.ReadOnly {
				return s.Host, true
			}
		}
	}
	return "", false
}

// Linked are the patterns of what path, below host, leads through in host, if there is
// a symbolic link on the way: each link, and where it ends.
func Linked(host, path string) (patterns []string) {
	all := names(filepath.Join(host, path))
	if len(all) == 1 {
		return nil
	}
	for _, name := range all {
		if rel, in := below(name, host); in && rel != "" {
			patterns = append(patterns, "/"+Escape(rel))
		}
	}
	return patterns
}

// Escape makes a path a pattern that matches it alone.
func Escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// maxLinks is how many links Linux follows in a path (MAXSYMLINKS).
const maxLinks = 40

// names are what path leads through: each symbolic link, and at last where it
// ends. No directory of such a name is a link.
func names(path string) (found []string) {
	// Not filepath.Abs, which takes away a link together with the .. behind it.
	if !filepath.IsAbs(path) {
		if wd, err := os.Getwd(); err == nil {
			path = wd + "/" + path
		}
	}
	at, rest := "/", strings.Split(path, "/")
	for len(rest) > 0 {
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		target, err := os.Readlink(at)
		if err != nil || len(found) == maxLinks {
			continue
		}
		found = append(found, at)
		at = filepath.Dir(at)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return append(found, at)
}

// below reports whether name is dir or lies in it, whatever dir is called, and
// the way from there.
func below(name, dir string) (rel string, ok bool) {
	want, err := os.Stat(dir)
	if err != nil {
		return "", false
	}
	for p := name; ; p = filepath.Dir(p) {
		if st, err := os.Lstat(p); err == nil && os.SameFile(st, want) {
			return strings.TrimPrefix(name[len(p):], "/"), true
		}
		if p == filepath.Dir(p) {
			return "", false
		}
	}
}
