package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/dirs"

	"golang.org/x/sys/unix"
)

// loop restores a machine again and again, with a command in each, and looks for
// what is left behind.
func loop() error {
	// Whatever its parent leaves behind becomes a child of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	state, err := os.MkdirTemp("", "bench-state-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	run := func(i int) error {
		want := fmt.Sprintf("turn %d\n", i)
		cmd := exec.Command(tool("sb-run"), image, "--accel", "tcg", "--cpus", cpus, "--memory", memoryMB+"m", "--", "echo", strings.TrimSpace(want))
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil || out.String() != want || strings.Contains(errs.String(), "boots") {
			return fmt.Errorf("restore %d: %v: %q %q", i, err, out.String(), errs.String())
		}
		return nil
	}
	if err := run(0); err != nil { // what the first leaves may stay: locks, caches
		return err
	}
	before, err := hostThings(state)
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range *turns {
		if err := run(i + 1); err != nil {
			return err
		}
	}
	fmt.Printf("%d restores with a command each, %v each\n", *turns, (time.Since(began) / time.Duration(*turns)).Round(time.Millisecond))
	after, err := hostThings(state)
	if err != nil {
		return err
	}
	for thing := range before {
		delete(after, thing)
	}
	return report(fmt.Sprintf("processes, files and mounts left by them %.300v", slices.Sorted(maps.Keys(after))), float64(len(after)), "", 0)
}

// hostThings are the processes below this one, the mounts, and the files of the
// state and of the store, but for the logs, which are to stay.
func hostThings(state string) (map[string]bool, error) {
	all := map[string]bool{}
	for pid := 1; pid > 0; { // those that have ended meanwhile
		var err error
		if pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil {
			break
		}
	}
	for _, p := range family(os.Getpid())[1:] {
		all[fmt.Sprintf("process %d %s", p.pid, p.name)] = true
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 {
			all["mount "+f[4]] = true
		}
	}
	data, err := dirs.Data()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{data, state, os.TempDir()} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !strings.HasSuffix(path, ".log") && (dir != os.TempDir() || strings.HasPrefix(d.Name(), "sb-")) {
				all["file "+path] = true
			}
			if dir == os.TempDir() && d != nil && d.IsDir() && path != dir {
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
