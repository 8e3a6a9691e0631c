// The program bench times a directory: a share and what it is to be compared
// with, such as the bare file system. It needs nothing but git, so that it can
// be copied into a guest and run on a share there.
//
//	bench [--files=20000] [--rounds=3] [--size=256] NAME=DIR [NAME=DIR …]
//
// It makes a git repository of --files files in each directory, runs all
// measurements in one directory after the other, --rounds times, and prints the
// best of each, and its ratio to the first directory's. "cold" means that the
// kernel's caches of names and attributes were dropped before, in all directories,
// which takes root.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"sb/lib/say"
)

func main() { say.Main("bench", run) }

// place is a directory that is measured, and its best times by measurement.
type place struct {
	name, dir string
	best      map[string]time.Duration
}

// bench is what all measurements share.
type bench struct {
	files int
	size  int // MiB
}

// measurement is one line of the table. It works in a place's directory; count
// is how many operations it is, 0 for a time, -1 for megabytes.
type measurement struct {
	name  string
	cold  bool
	count int
	run   func(dir string) error
}

func run(args []string) error {
	fs := say.Flags("bench", "[flags] NAME=DIR …", "Times file operations and git in directories.")
	files := fs.Int("files", 20000, "files in the git tree")
	rounds := fs.Int("rounds", 3, "how often to run each measurement")
	size := fs.Int("size", 256, "MiB to write and read at a stretch")
	if err := say.Parse(fs, args); err != nil {
		return err
	}
	places, err := parsePlaces(fs.Args())
	if err != nil {
		return err
	}
	b := bench{*files, *size}
	for _, p := range places {
		start := time.Now()
		if err := b.makeTree(p.dir); err != nil {
			return fmt.Errorf("make the tree in %s: %w", p.dir, err)
		}
		p.best["make the tree, git add, commit"] = time.Since(start)
	}
	list := b.measurements()
	for range *rounds {
		for _, p := range places {
			for _, m := range list {
				if err := p.measure(m); err != nil {
					return fmt.Errorf("%s in %s: %w", m.name, p.dir, err)
				}
			}
		}
	}
	b.print(places, list)
	return nil
}

func parsePlaces(args []string) ([]*place, error) {
	var places []*place
	for _, a := range args {
		name, dir, ok := strings.Cut(a, "=")
		if !ok {
			return nil, say.Usage("%q is not NAME=DIR", a)
		}
		places = append(places, &place{name, dir, map[string]time.Duration{}})
	}
	if len(places) == 0 {
		return nil, say.Usage("want a directory to measure")
	}
	return places, nil
}

func (p *place) measure(m measurement) error {
	if m.cold {
		if err := dropCaches(); err != nil {
			return nil // not root: the line stays empty
		}
	}
	start := time.Now()
	if err := m.run(p.dir); err != nil {
		return err
	}
	took := time.Since(start)
	if best, ok := p.best[m.name]; !ok || took < best {
		p.best[m.name] = took
	}
	return nil
}

// dropCaches drops names and attributes, and with them what pages they hold.
func dropCaches() error {
	if err := exec.Command("sync").Run(); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0)
}

// makeTree makes a git repository of b.files files of about 1 KiB, 50 in a
// directory.
func (b bench) makeTree(dir string) error {
	tree := filepath.Join(dir, "tree")
	text := strings.Repeat("the quick brown fox jumps over the lazy dog\n", 24)
	for i := range b.files {
		d := treeDir(tree, i)
		if i%50 == 0 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		name := filepath.Join(d, fmt.Sprintf("file%05d.txt", i))
		if err := os.WriteFile(name, fmt.Appendf(nil, "%d\n%s", i, text), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"config", "gc.auto", "0"}, {"add", "-A"},
		{"-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "all"},
	} {
		if err := git(tree, args...); err != nil {
			return err
		}
	}
	return nil
}

func treeDir(tree string, i int) string {
	return filepath.Join(tree, fmt.Sprintf("part%02d", i/1000), fmt.Sprintf("dir%03d", i/50))
}

func git(dir string, args ...string) error {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_OPTIONAL_LOCKS=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return nil
}

// print prints the table.
func (b bench) print(places []*place, list []measurement) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	head := "what"
	for i, p := range places {
		head += "\t" + p.name
		if i > 0 {
			head += "\t÷ " + places[0].name
		}
	}
	fmt.Fprintln(w, head)
	list = append(list, measurement{name: "make the tree, git add, commit"})
	for _, m := range list {
		line := m.name
		for i, p := range places {
			took, ok := p.best[m.name]
			if !ok {
				line += "\t-"
				if i > 0 {
					line += "\t-"
				}
				continue
			}
			line += "\t" + show(m, took)
			if i > 0 {
				line += fmt.Sprintf("\t%.2f", took.Seconds()/places[0].best[m.name].Seconds())
			}
		}
		fmt.Fprintln(w, line)
	}
	w.Flush()
}

func show(m measurement, took time.Duration) string {
	switch {
	case m.count > 0:
		return fmt.Sprintf("%.1f µs each", took.Seconds()*1e6/float64(m.count))
	case m.count < 0:
		return fmt.Sprintf("%.0f MiB/s", float64(-m.count)/took.Seconds())
	}
	return fmt.Sprintf("%.3f s", took.Seconds())
}
