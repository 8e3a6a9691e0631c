package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"sb/lib/say"
	"sb/sb-run/undo"
)

func undoDiff(args []string) error {
	flags := say.Flags("sb-run undo diff", "[RECORD] [PATH…]", `
Shows what changed in the tree since it was recorded, one path a line, or how its
text changed. A is added, M modified, D deleted, T of another kind, m permissions,
owner or attributes, L names of one file, ? not recorded.`)
	patch := flags.BoolP("patch", "p", false, "show the changed lines")
	stat := flags.Bool("stat", false, "count the changed lines")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if *patch && *stat {
		return say.Usage("--patch and --stat exclude each other")
	}
	ctx, stop := interruptible()
	defer stop()
	s, err := undo.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	r, words, err := findRecord(s, flags.Args())
	if err != nil {
		return err
	}
	paths, err := treePaths(r.Tree, words)
	if err != nil {
		return err
	}
	now, err := s.Scan(ctx, r.Tree, r.Rules)
	if err != nil {
		return fmt.Errorf("compare %s with the record %s: %w", r.Tree, r.Name, err)
	}
	if err := checkPaths(paths, words, r, now); err != nil {
		return err
	}
	d := &differ{store: s, tree: r.Tree, out: bufio.NewWriter(os.Stdout), patch: *patch, stat: *stat}
	err = d.print(r, now, paths)
	if ferr := d.out.Flush(); err == nil {
		err = ferr
	}
	return err
}

// differ prints differences.
type differ struct {
	store       *undo.Store
	tree        string
	out         *bufio.Writer
	patch, stat bool

	files, added, removed int
}

func (d *differ) print(from, to *undo.Record, paths []string) error {
	changes, unknown := undo.Diff(from, to)
	for _, c := range changes {
		if !undo.Within(c.Path, paths) {
			continue
		}
		var err error
		switch {
		case d.stat:
			err = d.count(c)
		case d.patch:
			err = d.show(c)
		default:
			fmt.Fprintf(d.out, "%c %s\n", c.Status, named(c.New, c.Old))
		}
		if err != nil {
			return err
		}
	}
	for _, k := range unknown {
		if undo.Within(k.Path, paths) && !d.stat {
			fmt.Fprintf(d.out, "? %s (%s)\n", say.Safe(k.Path), say.Safe(k.Why))
		}
	}
	if d.stat {
		fmt.Fprintf(d.out, "%d changed, %d lines added, %d removed\n", d.files, d.added, d.removed)
	}
	return nil
}

// named is a path as it is printed, the tree itself as a dot. The first entry that
// is one says what is there.
func named(entries ...*undo.Entry) string {
	e := first(entries...)
	path := say.Safe(e.Path)
	if path == "" {
		path = "."
	}
	if e.Kind == undo.Dir {
		path += "/"
	}
	return path
}

func (d *differ) count(c undo.Change) error {
	added, removed, err := d.store.Patch(io.Discard, d.tree, c)
	if err != nil {
		return err
	}
	d.files++
	if added < 0 {
		fmt.Fprintf(d.out, "%c %s not text\n", c.Status, named(c.New, c.Old))
		return nil
	}
	d.added, d.removed = d.added+added, d.removed+removed
	fmt.Fprintf(d.out, "%c %s +%d -%d\n", c.Status, named(c.New, c.Old), added, removed)
	return nil
}

func (d *differ) show(c undo.Change) error {
	if c.Status == undo.Moded {
		fmt.Fprintf(d.out, "%c %s %04o to %04o\n", c.Status, named(c.New, c.Old), c.Old.Mode, c.New.Mode)
		return nil
	}
	if c.New != nil && c.New.Kind == undo.Dir || c.New == nil && c.Old.Kind == undo.Dir || c.Status == undo.Relinked {
		fmt.Fprintf(d.out, "%c %s\n", c.Status, named(c.New, c.Old))
	}
	_, _, err := d.store.Patch(d.out, d.tree, c)
	return err
}
