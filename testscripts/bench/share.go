package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sb/lib/profile"
	"sb/testscripts/reach"
)

//go:embed share.sh
var shareScript string

// shareWorks are the works that are timed, and how many times as long as on the
// guest's own disk each may take on the share; 0: that is printed alone.
var shareWorks = []struct {
	name, what string
	limit      float64
}{
	{"status-first", "git status, 20,000 files, the first", 0},
	{"status", "git status, 20,000 files", 3},
	{"rg", "rg, 20,000 files", 0},
	{"write", "write 100 MiB, synced", 0},
	{"read", "read 100 MiB", 0},
	{"npm-ci", "npm ci, offline", 1.3},
	{"remove", "remove node_modules", 0},
}

// share times works of every day in one machine: in the workspace, on the guest's own
// disk, and in a private directory of the workspace.
func share() error {
	dir, err := os.MkdirTemp("", "bench-share-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := shareTree(filepath.Join(dir, "tree")); err != nil {
		return err
	}
	if err := sharePackage(filepath.Join(dir, "package")); err != nil {
		return err
	}
	// One file is quicker to bring in than 20,000.
	if out, err := exec.Command("tar", "-cf", filepath.Join(dir, "all.tar"), "-C", dir, "tree", "package").CombinedOutput(); err != nil {
		return fmt.Errorf("pack the trees: %w: %s", err, out)
	}
	data, err := filepath.Abs(filepath.Join(".cache", "live"))
	if err != nil {
		return err
	}
	e, err := reach.Open(context.Background(), filepath.Dir(tool("sb-run")), data)
	if err != nil {
		return err
	}
	p, err := profile.Open(filepath.Join(data, "none")).Find("claude")
	if err != nil {
		return err
	}
	cmd := e.Command("shell", "--image", p.Image[0], "--accel", "tcg", "--no-input", "-w", dir, "--private", "private", "--", "bash", "-c", shareScript)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the works in the guest: %w, behind these:\n%s", err, out)
	}
	return reportShare(out)
}

// reportShare prints the medians, and compares those on the share with the disk's.
func reportShare(out []byte) (err error) {
	took := map[string][]time.Duration{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 3 {
			return fmt.Errorf("the guest prints %q", lines.Text())
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return err
		}
		took[f[0]+" "+f[1]] = append(took[f[0]+" "+f[1]], time.Duration(n))
	}
	fmt.Printf("%-38s %10s %10s %10s\n", "", "disk", "share", "private")
	for _, w := range shareWorks {
		of := func(place string) time.Duration {
			all := took[place+" "+w.name]
			if len(all) == 0 {
				err = fmt.Errorf("the guest does not say how long %s takes on the %s", w.name, place)
				return 1
			}
			return median(all)
		}
		disk, shared, private := of("disk"), of("share"), of("private")
		fmt.Printf("%-38s %10v %10v %10v\n", w.what, disk.Round(time.Millisecond), shared.Round(time.Millisecond), private.Round(time.Millisecond))
		if err == nil && w.limit > 0 {
			err = report(w.what+": the share against the guest's disk", float64(shared)/float64(disk), "times", w.limit)
			if err == nil {
				err = report(w.what+": a private directory against it", float64(private)/float64(disk), "times", 1.2)
			}
		}
	}
	return err
}

// shareTree makes a repository of 20,000 files in 200 directories.
func shareTree(dir string) error {
	for i := range 200 {
		sub := filepath.Join(dir, fmt.Sprintf("part%03d", i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		for j := range 100 {
			text := strings.Repeat(fmt.Sprintf("line %d of file %d\n", i, j), 20)
			if j == i%100 {
				text += "a needle\n"
			}
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%02d.txt", j)), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=B", "-c", "user.email=b@example.org", "commit", "-q", "-m", "all"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
		}
	}
	return nil
}

// sharePackage makes a package with a lock file of some 100 others, and npm's cache of
// them, by this machine's own npm.
func sharePackage(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := `{"name":"bench","version":"1.0.0","dependencies":{"express":"4.21.2","eslint":"8.57.1"}}`
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(text), 0o644); err != nil {
		return err
	}
	cmd := exec.Command("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--omit-lockfile-registry-resolved=false", "--cache", filepath.Join(dir, "cache"))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return os.RemoveAll(filepath.Join(dir, "node_modules"))
}
