package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/audit"
	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/reason"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// maxWhy bounds how many different refusals are told apart.
const maxWhy = 10_000

// why prints what a sandbox was refused, from its log.
func why(args []string) error {
	flags := say.Flags("sb-run why", "[NAME] [--json]",
		"Tells what a sandbox was refused, how often, why, and the flag that would allow it: of\n"+
			"the sandbox NAME, or of the newest one, running or ended.\n"+
			"Exits with 0 if something was refused, with 1 if nothing was.")
	asJSON := flags.Bool("json", false, "print JSON, an object a line")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 1 {
		return say.Usage("%q is one word too many: sb-run why takes the name of one sandbox", flags.Arg(1))
	}
	files, err := whyLogs(flags.Arg(0))
	if err != nil {
		return err
	}
	var r refusals
	for i, f := range files {
		err := r.readFile(f)
		if errors.Is(err, os.ErrNotExist) && i < len(files)-1 {
			continue // most logs have no older generation
		}
		if err != nil {
			return say.WithHint(err, "a sandbox that ends moves its log: try again")
		}
	}
	all := r.list()
	of := sandboxOf(files[1])
	if len(all) == 0 {
		say.Note("%s was refused nothing", of)
		return say.Exit(1)
	}
	if flags.NArg() == 0 {
		say.Note("what %s was refused, the newest sandbox:", of)
	}
	return writeWhy(os.Stdout, all, *asJSON)
}

// whyLogs are the files of a sandbox's log, the older generation first. They are
// looked for where it runs and then where ended ones are: one that ends meanwhile
// moves that way.
func whyLogs(name string) ([]string, error) {
	if name != "" && !manifest.ValidName(name) {
		return nil, say.Usage("%q is no name of a sandbox", name)
	}
	state, err := dirs.State()
	if err != nil {
		return nil, err
	}
	found := newestWhy(filepath.Join(state, "run", first(name, "*"), "audit.log"), filepath.Join(state, "log", first(name, "*")+".log"))
	switch {
	case found == "" && name != "":
		return nil, say.WithHint(fmt.Errorf("find what %s was refused: there is no such sandbox", name), "the logs of the last sandboxes lie in %s", filepath.Join(state, "log"))
	case found == "":
		return nil, errors.New("find what was refused: no sandbox has run yet")
	}
	return []string{found + ".1", found}, nil
}

// sandboxOf is the name of the sandbox that a log is of.
func sandboxOf(log string) string {
	if name := filepath.Base(log); name != "audit.log" {
		return strings.TrimSuffix(name, ".log")
	}
	return filepath.Base(filepath.Dir(log))
}

// newestWhy is the file that was written last of those that the patterns match.
func newestWhy(patterns ...string) (newest string) {
	var at time.Time
	for _, p := range patterns {
		files, _ := filepath.Glob(p)
		for _, file := range files {
			if st, err := os.Lstat(file); err == nil && st.Mode().IsRegular() && (newest == "" || st.ModTime().After(at)) {
				newest, at = file, st.ModTime()
			}
		}
	}
	return newest
}

// refusals are the totals of a log, as the gate keeps them of a run.
type refusals struct {
	all  []*total
	of   map[total]*total // by all but the number
	more int64            // refusals beyond maxWhy
}

// readFile adds a log.
func (r *refusals) readFile(file string) error {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("read what was refused: %w", err)
	}
	defer f.Close()
	return r.read(f)
}

// read adds the lines of a log. What is no line of one is passed over: the last
// of a sandbox that runs may be half written.
func (r *refusals) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, audit.MaxLine+1)
	for lines.Scan() {
		if l, err := audit.Parse(lines.Bytes()); err == nil && l.Verdict == audit.Deny {
			r.add(l)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what was refused: %w", err)
	}
	return nil
}

func (r *refusals) add(l audit.Line) {
	key := total{gate: l.Gate, name: l.Name, address: l.Address, why: l.Reason}
	if !key.worthTelling() {
		return
	}
	t := r.of[key]
	if t == nil {
		if len(r.all) == maxWhy {
			r.more += l.Count()
			return
		}
		if r.of == nil {
			r.of = map[total]*total{}
		}
		entry := key
		t = &entry
		r.of[key], r.all = t, append(r.all, t)
	}
	t.n += l.Count()
}

// list are the totals, the highest first.
func (r *refusals) list() []total {
	slices.SortStableFunc(r.all, func(a, b *total) int { return int(min(max(b.n-a.n, -1), 1)) })
	all := make([]total, len(r.all))
	for i, t := range r.all {
		all[i] = *t
	}
	if r.more > 0 {
		say.Note("%d more refusals, of other things than these %d, are in the log alone: sb-policy log --denied", r.more, maxWhy)
	}
	return all
}

// writeWhy writes the lines of the end of a run, and below them what their
// reasons mean, each once, and what can be done where no rule is of use.
func writeWhy(to io.Writer, all []total, asJSON bool) error {
	out := bufio.NewWriter(to)
	if asJSON {
		lines := say.JSON(out)
		for _, t := range all {
			lines.Encode(t.json())
		}
		return out.Flush()
	}
	told, helped := map[reason.Code]bool{}, map[reason.Code]bool{}
	for _, t := range all {
		fmt.Fprintln(out, t)
		helped[t.why] = helped[t.why] || t.suggest() != ""
	}
	for _, t := range all {
		if e, ok := reason.Explain(t.why); ok && !told[t.why] {
			told[t.why] = true
			text := e.What
			if !helped[t.why] { // no line above has a rule that would allow it
				text += " " + e.Fix
			}
			fmt.Fprintf(out, "%s: %s\n", t.why, strings.TrimSpace(text))
		}
	}
	return out.Flush()
}

// whyLine is a line of why --json.
type whyLine struct {
	Count   int64  `json:"count"`
	Gate    string `json:"gate"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"`
	Reason  string `json:"reason"`
	What    string `json:"what,omitempty"`  // the reason as a sentence
	Fix     string `json:"fix,omitempty"`   // what else can be done, where no rule is of use
	Allow   string `json:"allow,omitempty"` // the rule that would allow it
}

func (t total) json() whyLine {
	e, _ := reason.Explain(t.why)
	allow := t.suggest()
	if allow != "" {
		e.Fix = ""
	}
	return whyLine{t.n, string(t.gate), t.name, t.address, string(t.why), e.What, e.Fix, allow}
}
