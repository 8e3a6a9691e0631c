package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/say"
)

// logFiles are the files that the arguments name: a file by its path, a sandbox
// by its name. Without one, a terminal as stdin means the newest sandbox.
func logFiles(args []string) ([]string, error) {
	if len(args) == 0 {
		if st, err := os.Stdin.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
			return nil, nil
		}
		return newestLog()
	}
	var files []string
	for _, arg := range args {
		_, err := os.Stat(arg)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || !manifest.ValidName(arg) {
			files = append(files, arg)
			continue
		}
		found, err := logsOf(arg)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, say.WithHint(fmt.Errorf("read the log of %s: there is neither such a file nor such a sandbox", arg), "the logs of the last sandboxes lie in %s; sb-policy log, on a terminal, shows that of the newest", where())
		}
		files = append(files, found...)
	}
	return files, nil
}

// where is the directory of the logs of sandboxes that have ended.
func where() string {
	state, err := dirs.State()
	if err != nil {
		return "the state directory"
	}
	return filepath.Join(state, "log")
}

// logsOf are the logs of a sandbox, the older generation first: in its run
// directory while it runs, among those of earlier runs after.
func logsOf(name string) ([]string, error) {
	state, err := dirs.State()
	if err != nil {
		return nil, err
	}
	running, ended := filepath.Join(state, "run", name, "audit.log"), filepath.Join(state, "log", name+".log")
	var found []string
	for _, file := range []string{running + ".1", running, ended + ".1", ended} {
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
			found = append(found, file)
		}
	}
	return found, nil
}

// newestLog is the log that was written last.
func newestLog() ([]string, error) {
	state, err := dirs.State()
	if err != nil {
		return nil, err
	}
	running, _ := filepath.Glob(filepath.Join(state, "run", "*", "audit.log"))
	ended, _ := filepath.Glob(filepath.Join(state, "log", "*.log"))
	var newest string
	var at time.Time
	for _, file := range append(running, ended...) {
		if st, err := os.Stat(file); err == nil && st.ModTime().After(at) {
			newest, at = file, st.ModTime()
		}
	}
	if newest == "" {
		return nil, say.WithHint(errors.New("read the log: no sandbox has run yet"), "sb-policy log FILE reads a log; so does sb-policy log <FILE")
	}
	return []string{newest}, nil
}
