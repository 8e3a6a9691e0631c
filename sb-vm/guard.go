package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/say"
)

// guard keeps the guest from what decides about it on the host. A share of sb's
// own directories is refused; of the files that this machine is made of, and of
// file, its manifest, the guest may change none that a share has.
func guard(m *manifest.Manifest, file string) error {
	ours := keep.Ours()
	for _, s := range m.Shares {
		if err := keep.Refuse(s.Host, !s.ReadOnly && !s.Copy, ours, s.Hidden...); err != nil {
			return fmt.Errorf("share %s: %w", s.Host, err)
		}
	}
	paths := []string{file}
	for _, path := range []string{m.Machine.Kernel, m.Machine.Base, m.Machine.Disk, m.Machine.Kept, m.Machine.Console} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	if self, err := os.Executable(); err == nil {
		paths = append(paths, filepath.Dir(self))
	}
	if program, err := guestProgram(); err == nil {
		paths = append(paths, filepath.Dir(program), program)
	}
	added, err := keep.Protect(m.Shares, paths...)
	for _, path := range added {
		say.Note("%s is read-only in the guest: sandboxes are run by it", path)
	}
	return err
}
