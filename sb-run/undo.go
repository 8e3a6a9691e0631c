package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sb/lib/say"
	"sb/sb-run/undo"
)

var undoVerbs = []say.Verb{
	{Name: "ls", Args: "[--json]", Text: "list the records, the newest first", Run: undoLs},
	{Name: "verify", Args: "[RECORD]", Text: "check that a record, or each, is whole", Run: undoVerify},
	{Name: "diff", Args: "[RECORD] [PATH…]", Text: "show what changed since", Run: undoDiff},
	{Name: "restore", Args: "[RECORD] PATH…|--all", Text: "put back what was recorded", Run: undoRestore},
	{Name: "prune", Args: "[--keep N|--older DAYS|RECORD…]", Text: "remove records", Run: undoPrune},
}

const undoText = `
Shows and puts back what sb-run --undo recorded of a working directory before a
run. RECORD is the name of a record, or of the sandbox that it was made for; without
one it is the last that was made before a run, of the tree that the current directory
is in.`

func undoVerb(args []string) error { return say.Verbs("sb-run undo", undoText, undoVerbs, args) }

func undoLs(args []string) error {
	flags := say.Flags("sb-run undo ls", "[--json]", "Lists the records, the newest first.")
	asJSON := flags.Bool("json", false, "print one JSON object a line")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("undo ls takes no argument, not %q", flags.Arg(0))
	}
	s, err := undo.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	all, lerr := s.List()
	if *asJSON {
		out := say.JSON(os.Stdout)
		for _, h := range all {
			if err := out.Encode(h); err != nil {
				return err
			}
		}
		return lerr
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "RECORD\tFILES\tSIZE\tNOT RECORDED\tTREE")
	for _, h := range all {
		fmt.Fprintf(out, "%s\t%d\t%s\t%d\t%s\n", say.Safe(h.Name), h.Files, megabytes(h.Bytes), h.Missing, say.Safe(h.Tree))
	}
	return errors.Join(out.Flush(), lerr)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// findRecord takes the record off the words of a call.
func findRecord(s *undo.Store, args []string) (*undo.Record, []string, error) {
	all, err := s.List()
	if err != nil {
		say.Warn("%v", err)
	}
	if len(args) > 0 {
		for _, h := range all {
			if h.Name == args[0] || h.Of == args[0] {
				r, err := s.Load(h.Name)
				return r, args[1:], err
			}
		}
	}
	here, err := workingDirectory()
	if err != nil {
		return nil, nil, err
	}
	best := lastRecord(all, here)
	if best.Name == "" {
		what := "there is no record of " + here
		if len(args) > 0 {
			what += fmt.Sprintf(", and none that is called %q", args[0])
		}
		return nil, nil, say.WithHint(errors.New(what), "sb-run undo ls lists the records; sb-run --undo makes one before a run")
	}
	r, err := s.Load(best.Name)
	return r, args, err
}

// lastRecord is what is meant by no name, of all, the newest first: the last one of the
// innermost tree that here is in. One that a restore made is not, unless there is no
// other: it has what the run left, and to restore from it would take back what was
// restored.
func lastRecord(all []undo.Header, here string) (best undo.Header) {
	for _, h := range all {
		_, in := within(h.Tree, here)
		inner := len(h.Tree) > len(best.Tree)
		ofRun := h.Tree == best.Tree && best.Of == undo.BeforeRestore && h.Of != undo.BeforeRestore
		if in && (inner || ofRun) {
			best = h
		}
	}
	return best
}

func workingDirectory() (string, error) {
	wd, err := os.Getwd()
	if err == nil {
		wd, err = filepath.EvalSymlinks(wd)
	}
	if err != nil {
		return "", fmt.Errorf("find the current directory: %w", err)
	}
	return wd, nil
}

// within is the way from tree to path, which is "" for the tree itself.
func within(tree, path string) (rel string, ok bool) {
	if path == tree {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(tree, "/")+"/")
}

// treePaths are the words as paths of the tree. They are taken from the current
// directory if that is in the tree, else from the tree.
func treePaths(tree string, words []string) (paths []string, err error) {
	here, err := workingDirectory()
	if err != nil {
		return nil, err
	}
	if _, in := within(tree, here); !in {
		here = tree
	}
	for _, word := range words {
		if word == "" {
			return nil, say.Usage("a path is an empty word")
		}
		path := filepath.Clean(word)
		if !filepath.IsAbs(path) {
			path = filepath.Join(here, path)
		}
		rel, in := within(tree, path)
		if !in { // by another name of the tree
			if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
				rel, in = within(tree, filepath.Join(dir, filepath.Base(path)))
			}
		}
		if !in {
			return nil, say.WithHint(say.Usage("%s is not in %s, of which the record is", word, tree), "sb-run undo ls lists the records, and their trees")
		}
		paths = append(paths, rel)
	}
	return paths, nil
}

// checkPaths refuses a path at which there is nothing, in the record or now.
func checkPaths(paths []string, words []string, record, now *undo.Record) error {
	for i, p := range paths {
		if record.Has(p) {
			continue
		}
		for _, k := range slices.Concat(record.Skipped, now.Skipped) {
			if undo.Within(p, []string{k.Path}) {
				return fmt.Errorf("%s is not in the record %s: %s", words[i], record.Name, k.Why)
			}
		}
		if !now.Has(p) {
			err := fmt.Errorf("there is no %s, in the record or now", words[i])
			return say.WithHint(err, "sb-run undo ls lists the records, sb-run undo diff the paths that changed")
		}
	}
	return nil
}

// interruptible is a context that ends with the first signal.
func interruptible() (context.Context, func()) {
	e, stop := newEnding()
	return e.ctx, stop
}

func undoVerify(args []string) error {
	flags := say.Flags("sb-run undo verify", "[RECORD]", `
Reads all that a record has and compares it with its digests, and lists what was not
recorded. Without RECORD, each record. The exit code is 1 if something is damaged.`)
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	s, err := undo.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	var names []string
	if flags.NArg() > 0 {
		r, rest, err := findRecord(s, flags.Args())
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return say.Usage("undo verify takes one record; %q is none", rest[0])
		}
		names = []string{r.Name}
	} else if all, lerr := s.List(); lerr != nil {
		return lerr
	} else {
		for _, h := range all {
			names = append(names, h.Name)
		}
	}
	bad := 0
	for _, name := range names {
		r, err := s.Load(name)
		if err != nil {
			return err
		}
		damaged, err := s.Verify(ctx, r)
		if err != nil {
			return fmt.Errorf("verify %s: %w", name, err)
		}
		printVerified(r, damaged, flags.NArg() > 0)
		bad += len(damaged)
	}
	if bad > 0 {
		return say.Exit(say.CodeFailed)
	}
	return nil
}

func printVerified(r *undo.Record, damaged []undo.Damage, skipped bool) {
	what := "whole"
	if len(damaged) > 0 {
		what = fmt.Sprintf("%d damaged", len(damaged))
	}
	fmt.Printf("%s: %d files, %s\n", say.Safe(r.Name), r.Files, what)
	for _, d := range damaged {
		fmt.Printf("damaged %s: %s\n", say.Safe(d.Path), say.Safe(d.Err.Error()))
	}
	for _, k := range r.Skipped {
		if skipped {
			fmt.Printf("not recorded %s: %s\n", say.Safe(k.Path), say.Safe(k.Why))
		}
	}
}

func undoPrune(args []string) error {
	flags := say.Flags("sb-run undo prune", "[--keep N|--older DAYS|RECORD…]", `
Removes records, and the files that no other record has. Without a word, those
that are more of a tree than are kept (10, or [records] keep of config.toml): of those
made before runs, and of those made before restores.`)
	keep := flags.Int("keep", -1, "keep the last `N` records of each tree")
	flags.Lookup("keep").DefValue = ""
	older := flags.Int("older", -1, "remove what is older than `DAYS` days")
	flags.Lookup("older").DefValue = ""
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	switch given := flags.NFlag(); {
	case given > 1 || given == 1 && flags.NArg() > 0:
		return say.Usage("--keep, --older and RECORD exclude each other")
	case flags.Changed("keep") && *keep < 0, flags.Changed("older") && *older < 0:
		return say.Usage("a number of records, or of days, is not negative")
	}
	if !flags.Changed("keep") && !flags.Changed("older") {
		c, err := loadConfig()
		if err != nil {
			return err
		}
		*keep = c.Records.limits().Keep
	}
	s, err := undo.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	var p undo.Pruned
	if flags.NArg() > 0 {
		p, err = s.Remove(flags.Args())
	} else {
		p, err = s.Prune(func(all []undo.Header) []undo.Header {
			if flags.Changed("older") {
				return undo.Older(all, time.Now().AddDate(0, 0, -*older))
			}
			return undo.Beyond(all, *keep)
		})
	}
	for _, name := range p.Records {
		fmt.Printf("removed %s\n", say.Safe(name))
	}
	if err == nil {
		fmt.Printf("freed %s\n", megabytes(p.Freed))
	}
	return err
}
