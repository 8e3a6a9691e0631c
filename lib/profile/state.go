package profile

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// State is what of the home is kept from one sandbox of the profile to the next.
// Paths begin with ~/.
type State struct {
	Paths []string `toml:"paths"` // files and trees
	Leave []string `toml:"leave"` // of them, what is not kept

	// Seed are patterns (path.Match) of the host's own files that the state begins
	// with, without what looks like a secret in them. {project} and {slashes} are the
	// working directory, as clients write it in names.
	Seed []string `toml:"seed"`
}

func (s State) check() error {
	for _, p := range append(append(append([]string(nil), s.Paths...), s.Leave...), s.Seed...) {
		rest, ok := strings.CutPrefix(p, "~/")
		if !ok || !filepath.IsLocal(rest) || path.Clean(rest) != rest || rest == "." {
			return fmt.Errorf("state: %q is no path that begins with ~/", p)
		}
	}
	for _, p := range append(append([]string(nil), s.Leave...), s.Seed...) {
		if s.root(p) == "" {
			return fmt.Errorf("state: %q lies in none of the paths that are kept", p)
		}
	}
	for _, p := range s.Seed {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("state: %q is no pattern: %w", p, err)
		}
	}
	return nil
}

// root is that of the paths in which one lies.
func (s State) root(p string) string {
	for _, root := range s.Paths {
		if p == root || strings.HasPrefix(p, root+"/") {
			return root
		}
	}
	return ""
}

// Homes are paths without the ~/ that they begin with.
func Homes(paths []string) (names []string) {
	for _, p := range paths {
		names = append(names, strings.TrimPrefix(p, "~/"))
	}
	return names
}

// Root is that of the paths in which a seed lies, as Homes has it.
func (s State) Root(seed string) string { return strings.TrimPrefix(s.root(seed), "~/") }
