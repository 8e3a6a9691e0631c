package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// keptLogs is of how many earlier runs the audit logs are kept.
const keptLogs = 50

// Nothing in the run directory is followed if it is a symbolic link: none of
// ours is one.

// openAudit opens the audit log for appending.
func (d *runDir) openAudit() (*os.File, error) {
	f, err := os.OpenFile(d.file("audit.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return f, nil
}

// rotateAudit keeps the full log as the one older generation and returns the
// next. If it fails the full one stays where it is.
func (d *runDir) rotateAudit() (*os.File, error) {
	next := d.file("audit.log.next")
	unix.Unlink(next) // of a rotation that failed
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		if err = os.Rename(d.file("audit.log"), d.file("audit.log.1")); err == nil {
			err = os.Rename(next, d.file("audit.log"))
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("rotate the audit log: %w", err)
	}
	return f, nil
}

// remove ends the run directory. Its log moves to those of earlier runs; one
// that cannot is left where it is, for the next run to try again.
func (d *runDir) remove() error {
	defer d.lock.Close()
	if err := d.keepLogs(); err != nil {
		os.Remove(d.file("disk"))
		return say.WithHint(fmt.Errorf("keep the audit log: %w", err), "it is in %s until another run can keep it", d.path)
	}
	return os.RemoveAll(d.path)
}

func (d *runDir) keepLogs() error {
	for _, generation := range []string{".1", ""} {
		from := d.file("audit.log" + generation)
		st, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!st.Mode().IsRegular() || st.Size() == 0) {
			continue
		}
		if err == nil {
			err = os.Rename(from, filepath.Join(d.logs, d.name+".log"+generation))
		}
		if err != nil {
			return err
		}
	}
	dropOld(d.logs, keptLogs)
	return nil
}

// dropOld removes the logs of the oldest runs beyond a number.
func dropOld(dir string, keep int) {
	entries, _ := os.ReadDir(dir)
	age := map[string]time.Time{} // of each run's newest file
	for _, e := range entries {
		run := strings.TrimSuffix(e.Name(), ".1")
		if info, err := e.Info(); err == nil && info.ModTime().After(age[run]) {
			age[run] = info.ModTime()
		}
	}
	runs := make([]string, 0, len(age))
	for run := range age {
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b string) int { return age[b].Compare(age[a]) })
	for _, run := range runs[min(len(runs), keep):] {
		os.Remove(filepath.Join(dir, run))
		os.Remove(filepath.Join(dir, run+".1"))
	}
}

// openLog opens a log for reading. One that is no file is nothing of ours.
func (d *runDir) openLog(name string) (*os.File, error) {
	f, err := os.OpenFile(d.file(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("read %s: not a file", d.file(name))
	}
	return f, nil
}

// show writes a log to people, line by line and so that it cannot act on a
// terminal, whatever it holds.
func (d *runDir) show(w io.Writer, name string) {
	f, err := d.openLog(name)
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		io.WriteString(w, say.Safe(lines.Text())+"\n")
	}
}

// consoleEnd is the last lines of the machine's console, which may say why it
// ended.
func (d *runDir) consoleEnd() []string {
	const size, most = 4096, 5
	f, err := d.openLog("console.log")
	if err != nil {
		return nil
	}
	defer f.Close()
	f.Seek(-size, io.SeekEnd) // fails where there is less: then it is all read
	text, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[max(0, len(lines)-most):]
}
