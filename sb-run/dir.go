package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"sb/lib/dirs"
	"sb/lib/manifest"

	"golang.org/x/sys/unix"
)

// runDir is the directory of one sandbox while it runs. A held lock says that it
// does; a directory without one is what a killed run left.
type runDir struct {
	name, path string
	lock       *os.File
}

// keptLogs is how many audit logs of earlier runs are kept.
const keptLogs = 50

func runsDir() (string, error) {
	state, err := dirs.State()
	if err != nil {
		return "", err
	}
	return dirs.Ensure(filepath.Join(state, "run"))
}

func logsDir() (string, error) {
	state, err := dirs.State()
	if err != nil {
		return "", err
	}
	return dirs.Ensure(filepath.Join(state, "log"))
}

// newRunDir makes the directory of a new run, after clearing away what killed
// runs left.
func newRunDir(target string) (*runDir, error) {
	runs, err := runsDir()
	if err != nil {
		return nil, err
	}
	sweep(runs)
	for range 100 {
		random := make([]byte, 3)
		rand.Read(random)
		d := &runDir{name: sandboxName(target, hex.EncodeToString(random))}
		d.path = filepath.Join(runs, d.name)
		if err := os.Mkdir(d.path, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("make the run directory: %w", err)
		}
		if d.lock, err = takeLock(d.path); err != nil {
			os.RemoveAll(d.path)
			return nil, fmt.Errorf("make the run directory: %w", err)
		}
		return d, nil
	}
	return nil, errors.New("make the run directory: no free name")
}

// takeLock locks a run directory for as long as this process lives.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep clears away the directories of runs that were killed. Only their logs
// are kept.
func sweep(runs string) {
	entries, _ := os.ReadDir(runs)
	for _, e := range entries {
		path := filepath.Join(runs, e.Name())
		// A directory without a lock may be one that is being made.
		if st, err := os.Lstat(filepath.Join(path, "lock")); err != nil || !st.Mode().IsRegular() {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Minute {
				os.RemoveAll(path)
			}
			continue
		}
		if lock, err := takeLock(path); err == nil {
			(&runDir{name: e.Name(), path: path, lock: lock}).remove()
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
	if err := os.WriteFile(d.file("sandbox.toml"), text, 0o600); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// openAudit opens the audit log for appending.
func (d *runDir) openAudit() (*os.File, error) {
	f, err := os.OpenFile(d.file("audit.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return f, nil
}

// rotateAudit keeps the full log as the one older generation and opens the next.
func (d *runDir) rotateAudit() (*os.File, error) {
	if err := os.Rename(d.file("audit.log"), d.file("audit.log.1")); err != nil {
		return nil, fmt.Errorf("rotate the audit log: %w", err)
	}
	return d.openAudit()
}

// remove ends the run directory. Its log moves to those of earlier runs.
func (d *runDir) remove() error {
	err := d.keepLogs()
	if e := os.RemoveAll(d.path); err == nil {
		err = e
	}
	d.lock.Close()
	return err
}

func (d *runDir) keepLogs() error {
	logs, err := logsDir()
	if err != nil {
		return err
	}
	for _, suffix := range []string{".1", ""} {
		err := os.Rename(d.file("audit.log"+suffix), filepath.Join(logs, d.name+".log"+suffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep the audit log: %w", err)
		}
	}
	return dropOld(logs, keptLogs)
}

// dropOld removes the oldest files of a directory beyond a number.
func dropOld(dir string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	age := map[string]time.Time{}
	var names []string
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			names = append(names, e.Name())
			age[e.Name()] = info.ModTime()
		}
	}
	sort.Slice(names, func(i, j int) bool { return age[names[i]].After(age[names[j]]) })
	for _, name := range names[min(len(names), keep):] {
		os.Remove(filepath.Join(dir, name))
	}
	return nil
}
