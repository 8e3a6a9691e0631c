package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// runDir is the directory of one sandbox while it runs. A held lock says that it
// does; a directory without one is what a killed run left.
type runDir struct {
	name, path string
	logs       string // where the audit log goes in the end
	lock       *os.File
	manifest   [sha256.Size]byte // of what was written
	entered    []*os.File        // the locks of the directories that its guest can write
}

// stateDir is a directory of that name in the state directory.
func stateDir(name string) (string, error) {
	state, err := dirs.State()
	if err != nil {
		return "", err
	}
	return dirs.Ensure(filepath.Join(state, name))
}

// newRunDir makes the directory of a new run, after clearing away what killed
// runs left. base is what its name begins with.
func newRunDir(base string) (*runDir, error) {
	runs, err := stateDir("run")
	if err != nil {
		return nil, err
	}
	logs, err := stateDir("log")
	if err != nil {
		return nil, err
	}
	// One run at a time makes or clears away: a directory without a lock in it
	// is being made otherwise.
	all, err := os.Open(runs)
	if err == nil {
		defer all.Close()
		err = lock(all, unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the run directories: %w", err)
	}
	sweep(runs, logs)
	sweepWorkspaces()
	for range 100 {
		random := make([]byte, 3)
		rand.Read(random)
		name := sandboxName(base, hex.EncodeToString(random))
		d, err := makeRunDir(filepath.Join(runs, name), logs)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make the run directory: %w", err)
		}
		return d, nil
	}
	return nil, errors.New("make the run directory: no free name")
}

func makeRunDir(path, logs string) (*runDir, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		if err = lock(f, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return &runDir{name: filepath.Base(path), path: path, logs: logs, lock: f}, nil
		}
		f.Close()
	}
	os.RemoveAll(path)
	return nil, err
}

// lock locks f for as long as it is open.
func lock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// sweep clears away the directories of runs that were killed. Only their logs
// are kept.
func sweep(runs, logs string) {
	entries, _ := os.ReadDir(runs)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		d := &runDir{name: e.Name(), path: filepath.Join(runs, e.Name()), logs: logs}
		var err error
		if d.lock, err = os.OpenFile(d.file("lock"), os.O_RDWR|unix.O_NOFOLLOW, 0); err == nil {
			if lock(d.lock, unix.LOCK_EX|unix.LOCK_NB) != nil {
				d.lock.Close() // it runs
				continue
			}
		}
		if err := d.remove(); err != nil {
			say.Warn("clear away what a killed run left: %v", err)
		}
	}
}

func (d *runDir) file(name string) string { return filepath.Join(d.path, name) }

// writeManifest writes the manifest that every tool reads.
func (d *runDir) writeManifest(m *manifest.Manifest) error {
	text, err := m.Encode()
	if err != nil {
		return err
	}
	d.manifest = sha256.Sum256(text)
	f, err := os.OpenFile(d.file("sandbox.toml"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// checkManifest refuses to start a part, or to start it again, by another
// manifest than the one that was written.
func (d *runDir) checkManifest() error {
	text, err := os.ReadFile(d.file("sandbox.toml"))
	if err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	if sha256.Sum256(text) != d.manifest {
		return say.WithHint(fmt.Errorf("read the manifest: %s was changed while the sandbox runs", d.file("sandbox.toml")), "start the sandbox again")
	}
	return nil
}
