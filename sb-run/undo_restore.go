package main

import (
	"fmt"

	"sb/lib/say"
	"sb/sb-run/undo"
)

func undoRestore(args []string) error {
	flags := say.Flags("sb-run undo restore", "[RECORD] PATH…|--all", `
Makes paths of the tree, or all of it, what they were when it was recorded. The tree as
it is now is recorded first, so that this can be undone as well. What is new since
is removed only with --all. Ignored folders, and what was not recorded, stay as they
are.`)
	all := flags.Bool("all", false, "restore all, and remove what is new since; with PATH, of that path")
	dry := flags.BoolP("dry-run", "n", false, "say what would be done, and do nothing")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	c, err := loadConfig()
	if err != nil {
		return err
	}
	s, err := undo.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	r, words, err := findRecord(s, flags.Args())
	if err != nil {
		return err
	}
	if len(words) == 0 && !*all {
		return say.WithHint(say.Usage("undo restore needs a path, or --all"), "sb-run undo diff shows what changed")
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
	plan := undo.MakePlan(r, now, paths, *all)
	if *dry || plan.Empty() {
		printPlanned(plan, *dry, plan.Blocked)
		return failedIf(!*dry && len(plan.Blocked) > 0)
	}
	if now, err = s.Record(ctx, r.Tree, undo.BeforeRestore, r.Rules); err != nil {
		return say.WithHint(err, "nothing was restored, since it could not be undone")
	}
	say.Note("the tree as it is now is the record %s: sb-run undo restore %s --all brings it back", now.Name, now.Name)
	plan = undo.MakePlan(r, now, paths, *all)
	left, err := s.Restore(ctx, plan)
	printPlanned(plan, false, left)
	sayOffered(r.Tree)
	limitRecords(s, now, c.Records.limits(), r.Name) // what was left of it can be restored later
	if err != nil {
		return fmt.Errorf("restore %s: %w", r.Tree, err)
	}
	return failedIf(len(left) > 0)
}

func failedIf(left bool) error {
	if left {
		return say.Exit(say.CodeFailed)
	}
	return nil
}

// printPlanned prints what was done, or would be, and says what was not.
func printPlanned(p *undo.Plan, dry bool, left []undo.Left) {
	failed := map[string]bool{}
	for _, l := range left {
		failed[l.Path] = true
	}
	put, removed := "restored", "removed"
	if dry {
		put, removed = "would restore", "would remove"
	}
	n := 0
	for _, c := range p.Changes() {
		what := put
		if c.Old == nil {
			what = removed
		}
		if !failed[c.Path] {
			fmt.Printf("%s %s\n", what, named(c.Old, c.New))
			n++
		}
	}
	for _, l := range left {
		say.Warn("%s is left as it is: %s", l.Path, l.Why)
	}
	for _, k := range p.Unknown {
		say.Note("%s is left as it is: it is not recorded (%s)", k.Path, k.Why)
	}
	if len(p.Stays) > 0 {
		say.Note("%d that are new since stay, %s first: --all removes them", len(p.Stays), p.Stays[0].Path)
	}
	if n == 0 && len(left)+len(p.Stays) == 0 {
		say.Note("nothing to restore: it is as it was")
	}
}
