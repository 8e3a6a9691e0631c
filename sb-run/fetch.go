package main

import (
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-run/work"
)

// fetchWork brings what a sandbox's clone had in it into the user's repository, or lists
// what is kept.
func fetchWork(args []string) error {
	flags := say.Flags("sb-run fetch", "NAME [BRANCH] | --ls [--json]",
		"Brings the work of a sandbox that was run with --clone into the repository that it is of, as sb/NAME/BRANCH.\nObjects and these names are all that changes there.")
	list := flags.Bool("ls", false, "list the sandboxes whose work is kept, the newest first")
	asJSON := flags.Bool("json", false, "with --ls: print JSON, an object a line")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	path, err := stateDir("work")
	if err != nil {
		return err
	}
	dir := work.Dir(path)
	switch {
	case *list && flags.NArg() == 0:
		return listWork(dir, *asJSON)
	case *list || *asJSON || flags.NArg() < 1 || flags.NArg() > 2:
		return say.WithHint(say.Usage("fetch takes the name of a sandbox, and of a branch"), "sb-run fetch --ls lists what is kept")
	case !manifest.ValidName(flags.Arg(0)):
		return say.Usage("%q is no name of a sandbox", flags.Arg(0))
	}
	e, stop := newEnding()
	defer stop()
	to, done, err := dir.Import(e.ctx, flags.Arg(0), flags.Arg(1))
	if err != nil {
		return e.instead(err)
	}
	for _, b := range done {
		fmt.Println(b.ID, b.Ref)
	}
	tree := to
	if filepath.Base(to) == ".git" {
		tree = filepath.Dir(to)
	}
	say.Note("it is in %s now; nothing is checked out or merged", tree)
	return nil
}

func listWork(dir work.Dir, asJSON bool) error {
	all, err := dir.List()
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	lines := say.JSON(os.Stdout)
	for _, k := range all {
		if asJSON {
			lines.Encode(k)
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", k.Name, k.Time.Format(time.RFC3339), say.Safe(k.From))
	}
	return out.Flush()
}
