package undo

import (
	"cmp"
	"slices"
	"strings"
)

// What a change is.
const (
	Added    = 'A'
	Modified = 'M' // its bytes, or where a link leads
	Deleted  = 'D'
	Retyped  = 'T' // it is of another kind
	Moded    = 'm' // its permissions, owner or attributes
	Relinked = 'L' // it was, or is, another name of another file
	touched  = 't' // its time alone, which Diff leaves out
)

// Change is one path that differs between two records.
type Change struct {
	Path     string
	Status   byte
	Old, New *Entry // nil where it is not
}

// Diff is what differs from one record to another, by path, and what one of them
// says nothing about. What a record skipped is no change.
func Diff(from, to *Record) (changes []Change, unknown []Skipped) {
	changes = slices.DeleteFunc(compare(from, to), func(c Change) bool { return c.Status == touched })
	return changes, unknowns(from, to)
}

// compare is Diff with changes of times.
func compare(from, to *Record) (changes []Change) {
	blind := blindSpots(from, to)
	oldLeaders, newLeaders := from.leaders(), to.leaders()
	i, j := 0, 0
	for i < len(from.Entries) || j < len(to.Entries) {
		var c Change
		order := 0
		switch {
		case i == len(from.Entries):
			order = 1
		case j == len(to.Entries):
			order = -1
		default:
			order = cmp.Compare(from.Entries[i].Path, to.Entries[j].Path)
		}
		if order <= 0 {
			c.Old = &from.Entries[i]
			c.Path = c.Old.Path
			i++
		}
		if order >= 0 {
			c.New = &to.Entries[j]
			c.Path = c.New.Path
			j++
		}
		c.Status = status(c.Old, c.New, oldLeaders[c.Path] == newLeaders[c.Path])
		if c.Status != 0 && !blind.covers(c.Path) {
			changes = append(changes, c)
		}
	}
	return changes
}

func status(a, b *Entry, sameFile bool) byte {
	switch {
	case a == nil:
		return Added
	case b == nil:
		return Deleted
	case a.Kind != b.Kind:
		return Retyped
	case a.Kind == File && (a.Size != b.Size || a.Digest != b.Digest), a.Target != b.Target:
		return Modified
	case !sameFile:
		return Relinked
	case a.Kind != Link && a.Mode != b.Mode, a.UID != b.UID, a.GID != b.GID, !slices.Equal(a.Attributes, b.Attributes):
		return Moded
	case a.Mtime != b.Mtime:
		return touched
	}
	return 0
}

// spots are paths of which, and beneath which, nothing is known.
type spots map[string]bool

// blindSpots are what either record skipped.
func blindSpots(records ...*Record) spots {
	all := spots{}
	for _, r := range records {
		for _, s := range r.Skipped {
			all[s.Path] = true
		}
	}
	return all
}

func (s spots) covers(path string) bool {
	if len(s) == 0 {
		return false
	}
	for ; path != ""; path = parent(path) {
		if s[path] {
			return true
		}
	}
	return s[""]
}

// unknowns are what either record skipped, but for ignored folders in the place of
// which the other has nothing either.
func unknowns(from, to *Record) (all []Skipped) {
	all = slices.Concat(from.Skipped, to.Skipped)
	slices.SortStableFunc(all, func(a, b Skipped) int { return cmp.Compare(a.Path, b.Path) })
	all = slices.CompactFunc(all, func(a, b Skipped) bool { return a.Path == b.Path })
	return slices.DeleteFunc(all, func(s Skipped) bool { return s.Ignored && from.at(s.Path) == nil && to.at(s.Path) == nil })
}

// Within reports whether path is one of paths, or beneath one. No paths are all.
func Within(path string, paths []string) bool {
	for _, p := range paths {
		if p == "" || path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return len(paths) == 0
}
