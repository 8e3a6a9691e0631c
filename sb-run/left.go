package main

import (
	"cmp"
	"slices"

	"sb/lib/say"
	"sb/sb-run/leftovers"
)

// left is what of the writable shares could run on the host, before the run.
type left struct {
	dirs   []string
	before []leftovers.State
}

// How many files are listed at the end of a run, and how many that the same runs.
const (
	maxLeft   = 20
	maxOfKind = 5
)

// lookBefore looks through what the guest will be able to write.
func (p *plan) lookBefore() (l left) {
	for _, s := range p.m.Shares {
		if !s.ReadOnly && !s.Copy {
			l.dirs = append(l.dirs, s.Host)
			l.before = append(l.before, leftovers.Scan(s.Host))
		}
	}
	return l
}

// tell lists what is there now and was not, or not so, and that not everything
// was looked at.
func (l left) tell() {
	found := make([][]*ofKind, len(l.dirs))
	cut := make([]bool, len(l.dirs))
	for i, dir := range l.dirs {
		after := leftovers.Scan(dir)
		found[i] = byKind(leftovers.Changes(l.before[i], after))
		cut[i] = after.Cut || l.before[i].Cut
	}
	more := choose(slices.Concat(found...))
	for i, dir := range l.dirs {
		if slices.ContainsFunc(found[i], func(k *ofKind) bool { return k.shown > 0 }) {
			say.Note("left in %s, and could run on this host:", dir)
		}
		for _, k := range found[i] {
			k.tell()
		}
		if cut[i] {
			say.Note("not all of %s was looked through for what could run on this host (%d entries, %v, or what could not be read)", dir, leftovers.MaxEntries, leftovers.MaxTime)
		}
	}
	if more > 0 {
		say.Note("  and %d more", more)
	}
}

// ofKind are changes of one directory that one thing runs, and how many are shown.
type ofKind struct {
	all   []leftovers.Change
	shown int
}

// byKind takes apart what is sorted by kinds.
func byKind(changes []leftovers.Change) (kinds []*ofKind) {
	for i, c := range changes {
		if i == 0 || c.Kind != changes[i-1].Kind || c.Rank != changes[i-1].Rank {
			kinds = append(kinds, &ofKind{})
		}
		k := kinds[len(kinds)-1]
		k.all = append(k.all, c)
	}
	return kinds
}

// choose chooses what is shown: one of each kind before a second one of any, what is
// worst first, so that no heap of one kind hides another. It returns how many are of
// kinds that are not shown at all.
func choose(kinds []*ofKind) (more int) {
	slices.SortStableFunc(kinds, func(a, b *ofKind) int { return cmp.Compare(a.all[0].Rank, b.all[0].Rank) })
	shown := 0
	for range maxOfKind {
		for _, k := range kinds {
			if shown < maxLeft && k.shown < len(k.all) {
				k.shown++
				shown++
			}
		}
	}
	for _, k := range kinds {
		if k.shown == 0 {
			more += len(k.all)
		}
	}
	return more
}

// tell lists those that are shown, and says how many others there are.
func (k *ofKind) tell() {
	for _, c := range k.all[:k.shown] {
		how := "changed"
		if c.New {
			how = "new"
		}
		path := c.Path
		if len(path) > maxShownName {
			path = path[:maxShownName] + "…"
		}
		say.Note("  %q (%s): %s", path, how, c.Why)
	}
	if rest := len(k.all) - k.shown; rest > 0 && k.shown > 0 {
		say.Note("  and %d more of these", rest)
	}
}
