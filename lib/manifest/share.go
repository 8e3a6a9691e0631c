package manifest

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
)

// Share is a directory of the host that the guest sees.
type Share struct {
	Host      string   `toml:"host"`                // absolute path on the host
	Guest     string   `toml:"guest"`               // absolute path in the guest
	ReadOnly  bool     `toml:"read_only"`           // enforced on the host
	Hidden    []string `toml:"hidden,omitempty"`    // paths below it that do not exist for the guest
	Protected []string `toml:"protected,omitempty"` // paths below it that the guest can read but not change
	Shadowed  []string `toml:"shadowed,omitempty"`  // paths below it whose changes land in Shadow: the guest sees them, the host does not
	Shadow    string   `toml:"shadow,omitempty"`    // absolute path on the host; without it, what is shadowed is protected
	Private   []string `toml:"private,omitempty"`   // directories below it that are the guest's own, on its disk
	Copy      bool     `toml:"copy,omitempty"`      // the guest has a duplicate of its own: what it changes stays in it
	UID       uint32   `toml:"uid"`                 // as whom the guest sees the user's files
	GID       uint32   `toml:"gid"`
}

// check refuses what cannot be meant of the paths below a share.
func (s *Share) check() error {
	for _, patterns := range [][]string{s.Hidden, s.Protected, s.Shadowed} {
		for _, p := range patterns {
			if err := CheckPattern(p); err != nil {
				return err
			}
		}
	}
	for _, p := range s.Private {
		if err := CheckPrivate(p); err != nil {
			return err
		}
	}
	switch {
	case s.Shadow != "" && !filepath.IsAbs(s.Shadow):
		return fmt.Errorf("shadow: %q is not an absolute path", s.Shadow)
	case s.Copy && len(s.Private) > 0:
		return errors.New("a copy is the guest's own, and has nothing private in it")
	}
	return nil
}

// CheckPattern refuses what is no pattern of hidden, protected or shadowed: a path
// below the share, or a name at any depth, its components globs as in path.Match.
func CheckPattern(pattern string) error {
	for _, part := range strings.Split(strings.Trim(pattern, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("the pattern %q has the component %q, which no file is called", pattern, part)
		}
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("the pattern %q: %w", pattern, err)
		}
	}
	return nil
}

// CheckPrivate refuses what is no path of a directory below a share.
func CheckPrivate(dir string) error {
	if !filepath.IsLocal(dir) || filepath.Clean(dir) != dir || dir == "." {
		return fmt.Errorf("%q is no path of a directory below the share", dir)
	}
	return nil
}

// ShadowName is what a path below a share is called in the directory that holds
// its shadows: escaped as in a URL, so that it is one name.
func ShadowName(path string) string { return url.PathEscape(path) }

// ShadowPath is the path that a name stands for.
func ShadowPath(name string) (string, error) { return url.PathUnescape(name) }
