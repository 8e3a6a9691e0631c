package profile

import (
	"fmt"
	"slices"

	"sb/lib/manifest"
)

// Workspace is what a profile, the user's configuration and a call may choose of
// the workspace.
type Workspace struct {
	Protect   []string `toml:"protect"`    // as --protect
	NoProtect bool     `toml:"no_protect"` // as --no-protect
	Hide      []string `toml:"hide"`       // as --hide
	Private   []string `toml:"private"`    // as --private
}

// Check refuses what cannot be meant, and names the key.
func (w *Workspace) Check() error {
	for _, c := range []struct {
		key   string
		paths []string
		check func(string) error
	}{
		{"protect", w.Protect, manifest.CheckPattern},
		{"hide", w.Hide, manifest.CheckPattern},
		{"private", w.Private, manifest.CheckPrivate},
	} {
		for _, path := range c.paths {
			if err := c.check(path); err != nil {
				return fmt.Errorf("%s: %w", c.key, err)
			}
		}
	}
	return nil
}

// Any says whether anything is chosen.
func (w *Workspace) Any() bool {
	return len(w.Protect)+len(w.Hide)+len(w.Private) > 0 || w.NoProtect
}

// Join adds up what several choose.
func (w Workspace) Join(others ...Workspace) Workspace {
	for _, o := range others {
		w.Protect = append(slices.Clip(w.Protect), o.Protect...)
		w.Hide = append(slices.Clip(w.Hide), o.Hide...)
		w.Private = append(slices.Clip(w.Private), o.Private...)
		w.NoProtect = w.NoProtect || o.NoProtect
	}
	return w
}
