package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-run/undo"
)

// records is what a user may choose of them, [records] in config.toml.
type records struct {
	Ignore  []string      `toml:"ignore"`  // names of folders that are not recorded
	Largest manifest.Size `toml:"largest"` // of a file
	Keep    int           `toml:"keep"`    // records of a tree
	Size    manifest.Size `toml:"size"`    // of all
}

// What is ignored without a word of the user's: what tools make again, and large.
var ignored = []string{".build", ".tox", ".venv", "__pycache__", "node_modules", "target"}

func (r *records) rules() undo.Rules {
	ignore := r.Ignore
	if ignore == nil {
		ignore = ignored
	}
	return undo.Rules{Ignore: ignore, Largest: int64(first(r.Largest, 1<<30))}
}

func (r *records) limits() undo.Limits {
	return undo.Limits{Keep: first(r.Keep, 10), Size: int64(first(r.Size, 10<<30))}
}

func (r *records) check() error {
	for _, name := range r.Ignore {
		if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
			return say.Usage("records.ignore: %q is no name of a folder", name)
		}
	}
	if r.Keep < 0 {
		return say.Usage("records.keep: %d is not a number of records", r.Keep)
	}
	return nil
}

// recording is what a run records before it begins.
type recording struct {
	tree   string
	others []string // directories that the guest can write and that are not recorded
	rules  undo.Rules
	limits undo.Limits
}

// recordingOf is what to record before this plan is run, nil for nothing: that is
// the working directory, if the guest can write it.
func recordingOf(m *manifest.Manifest, o *options, c *config) *recording {
	if !o.undo && (!c.Undo || o.noUndo) {
		return nil
	}
	r := &recording{rules: c.Records.rules(), limits: c.Records.limits()}
	work := workspaceOf(m, o)
	for _, s := range m.Shares {
		switch {
		case s.ReadOnly:
		case work != "" && s.Guest == work:
			r.tree = s.Host
		default:
			r.others = append(r.others, s.Host)
		}
	}
	if r.tree == "" {
		if o.undo {
			say.Note("nothing is recorded: the guest cannot write the working directory")
		}
		return nil
	}
	return r
}

// workspaceOf is the guest's name of the workspace: what --workspace or a profile
// shares, or in a manifest the share that the command starts in.
func workspaceOf(m *manifest.Manifest, o *options) (found string) {
	if !isManifest(o.target) {
		return o.workspace // by now its real path
	}
	for _, s := range m.Shares {
		if _, in := within(s.Guest, m.Run.Workdir); in && len(s.Guest) > len(found) {
			found = s.Guest
		}
	}
	return found
}

// record records the working directory for this run, and says so.
func (r *runner) record() error {
	if r.recording == nil {
		return nil
	}
	s, err := undo.Open()
	if err == nil {
		defer s.Close()
		var rec *undo.Record
		if rec, err = s.Record(r.ctx, r.recording.tree, r.dir.name, r.recording.rules); err == nil {
			sayRecorded(rec, r.recording.others)
			limitRecords(s, rec, r.recording.limits)
			return nil
		}
	}
	return say.WithHint(err, "--no-undo runs without a record")
}

// sayRecorded says what was recorded, and what was not.
func sayRecorded(r *undo.Record, others []string) {
	say.Note("recorded %s: %d files, %s, in %s (sb-run undo diff shows what changed)", r.Tree, r.Files, megabytes(r.Bytes), r.Took.Round(time.Millisecond))
	var names []string
	for _, k := range r.Skipped {
		if name := filepath.Base(k.Path); k.Ignored && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if r.Ignored > 0 {
		say.Note("not recorded, by rule: folders called %s (%d)", strings.Join(names, ", "), r.Ignored)
	}
	const most = 5
	n := 0
	for _, k := range r.Skipped {
		if !k.Ignored {
			if n++; n <= most {
				say.Warn("not recorded: %s: %s", k.Path, k.Why)
			}
		}
	}
	if n > most {
		say.Warn("not recorded: %d more (sb-run undo verify %s lists them)", n-most, r.Name)
	}
	for _, dir := range others {
		say.Warn("not recorded: %s, which the guest can write too", dir)
	}
}

// limitRecords keeps the store within its limits, and says what that took.
func limitRecords(s *undo.Store, r *undo.Record, l undo.Limits, stays ...string) {
	p, err := s.Limit(r, l, stays...)
	if err != nil {
		say.Warn("remove old records: %v", err)
	}
	if len(p.Records) > 0 {
		say.Note("removed old records, %d are kept of a tree and %s of all: %s (%s)", l.Keep, manifest.Size(l.Size), strings.Join(p.Records, ", "), megabytes(p.Freed))
	}
	if p.Used > l.Size {
		say.Warn("the records take %s, more than the %s that they may: %s alone does", megabytes(p.Used), manifest.Size(l.Size), r.Name)
	}
}
