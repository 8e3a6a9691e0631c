package main

import (
	"sb/lib/say"
	"sb/sb-run/leftovers"
)

// left is what of the writable shares could run on the host, before the run.
type left struct {
	dirs   []string
	before []leftovers.State
}

// maxLeft is how many files are listed at the end of a run.
const maxLeft = 20

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
	shown, more := 0, 0
	for i, dir := range l.dirs {
		after := leftovers.Scan(dir)
		changes := leftovers.Changes(l.before[i], after)
		if len(changes) > 0 && shown < maxLeft {
			say.Note("left in %s, and could run on this host:", dir)
		}
		for _, c := range changes {
			if shown == maxLeft {
				more++
				continue
			}
			shown++
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
		if after.Cut || l.before[i].Cut {
			say.Note("not all of %s was looked through for what could run on this host (%d entries, %v, or what could not be read)", dir, leftovers.MaxEntries, leftovers.MaxTime)
		}
	}
	if more > 0 {
		say.Note("  and %d more", more)
	}
}
