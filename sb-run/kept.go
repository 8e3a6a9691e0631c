package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// workspaceDir is the directory of a workspace in the state directory. Its file
// workspace has the path, and is as old as the last run is. What the workspace's
// guests wrote for themselves is in files; for each of these, was has what the
// host's was then (its digest): the next guest goes on with the file as long as that
// is so. The lock is held by each run.
func workspaceDir(workspace string) (string, error) {
	path, err := workspacePath(workspace)
	if err != nil {
		return "", err
	}
	return dirs.Ensure(path)
}

// workspacePath is where that is, or would be.
func workspacePath(workspace string) (string, error) {
	all, err := stateDir("workspaces")
	return filepath.Join(all, workspaceName(workspace)), err
}

func workspaceName(workspace string) string {
	sum := sha256.Sum256([]byte(workspace))
	return hex.EncodeToString(sum[:8])
}

// useWorkspaceDir is workspaceDir for a run.
func useWorkspaceDir(workspace string) (string, error) {
	dir, err := workspaceDir(workspace)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "workspace"), []byte(workspace), 0o600)
}

// enter says where another run works in a directory that this one can write, too.
// The locks are held as long as the run directory is.
func (d *runDir) enter(m *manifest.Manifest) error {
	for _, s := range m.Shares {
		if s.ReadOnly || s.Copy {
			continue
		}
		dir, err := useWorkspaceDir(s.Host)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if lock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
			say.Note("another sandbox works in %s, too: each sees at once what the other writes", s.Host)
		}
		if err := lock(f, unix.LOCK_SH); err != nil {
			return err
		}
		d.entered = append(d.entered, f)
	}
	return nil
}

// goneTime is how long a workspace must not have been used, besides not being there,
// until what is kept for it is removed: it may be on a disk that is not mounted.
const goneTime = 7 * 24 * time.Hour

// sweepWorkspaces removes what is kept for workspaces that are gone, and says so.
func sweepWorkspaces() {
	state, err := dirs.State()
	if err != nil {
		return // whoever needs it says why
	}
	all := filepath.Join(state, "workspaces") // which need not be there
	entries, _ := os.ReadDir(all)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if what, err := sweepWorkspace(filepath.Join(all, e.Name())); err != nil {
			say.Warn("remove what is kept for a workspace that is gone: %v", err)
		} else if what != "" {
			say.Note("removed what was kept for %s, which is gone", what)
		}
	}
}

// sweepWorkspace removes a directory of a workspace, if that is gone and no run has it,
// and returns which that was.
func sweepWorkspace(dir string) (workspace string, err error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if text, err := os.ReadFile(filepath.Join(dir, "workspace")); err == nil {
		workspace = string(text)
		st, err = os.Lstat(filepath.Join(dir, "workspace"))
		if err != nil {
			return "", err
		}
	}
	if time.Since(st.ModTime()) < goneTime {
		return "", nil
	}
	for _, name := range []string{"lock", "private.lock"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		defer f.Close()
		if lock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
			return "", nil // a run has it
		}
	}
	if _, err := os.Lstat(workspace); workspace != "" && !errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return first(workspace, dir), os.RemoveAll(dir)
}
