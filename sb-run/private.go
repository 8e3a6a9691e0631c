package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sb/lib/manifest"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// keepPrivate gives the machine the disk on which the private directories of its
// workspace lie. It is kept for the next sandbox there; one at a time has it.
func (r *runner) keepPrivate(m *manifest.Manifest) error {
	for _, s := range m.Shares {
		if len(s.Private) == 0 || m.Machine.Kept != "" {
			continue
		}
		dir, err := useWorkspaceDir(s.Host)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, "private.lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		r.dir.entered = append(r.dir.entered, f)
		if lock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
			say.Note("another sandbox has the private directories of %s: this one's are empty, and go with the machine", s.Host)
			continue
		}
		disk := filepath.Join(dir, "private.disk")
		if _, err := os.Lstat(disk); errors.Is(err, fs.ErrNotExist) {
			if _, err := ask(r.ending, false, "disk", disk, "--size", m.Machine.DiskSize.String()); err != nil {
				return fmt.Errorf("disk for private directories: %w", err)
			}
		} else if err != nil {
			return err
		}
		m.Machine.Kept = disk
	}
	return nil
}
