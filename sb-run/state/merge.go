package state

import (
	"archive/tar"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// choice is what is kept after two sandboxes began with the same.
type choice struct {
	mine, theirs map[string]bool // names, of which archive
	both         []string        // what both had changed
}

// choose decides for each file: what one of the two changed is kept, and of what both
// did, the newest.
func choose(base, mine, theirs index) (c choice) {
	c.mine, c.theirs = map[string]bool{}, map[string]bool{}
	groups := map[string]map[string]bool{}
	for _, in := range []index{base, mine, theirs} {
		for name := range in {
			if groups[group(name)] == nil {
				groups[group(name)] = map[string]bool{}
			}
			groups[group(name)][name] = true
		}
	}
	for _, first := range slices.Sorted(maps.Keys(groups)) {
		names := groups[first]
		from, to := theirs, c.theirs
		if !same(names, mine, theirs) && !same(names, mine, base) {
			switch {
			case same(names, theirs, base):
				from, to = mine, c.mine
			default:
				if c.both = append(c.both, first); newest(names, mine).After(newest(names, theirs)) {
					from, to = mine, c.mine
				}
			}
		}
		for name := range names {
			if _, there := from[name]; there {
				to[name] = true
			}
		}
	}
	c.drop(mine, theirs)
	return c
}

// drop leaves out what would lie below a file or a link of the other one's.
func (c *choice) drop(mine, theirs index) {
	dirs := func(name string) bool {
		return !c.mine[name] && !c.theirs[name] || c.mine[name] && mine[name].kind == tar.TypeDir || c.theirs[name] && theirs[name].kind == tar.TypeDir
	}
	for _, chosen := range []map[string]bool{c.mine, c.theirs} {
		for name := range chosen {
			for up := path.Dir(name); up != "."; up = path.Dir(up) {
				if !dirs(up) {
					delete(chosen, name)
				}
			}
		}
	}
}

// bytes are how many the chosen files have.
func (c *choice) bytes(mine, theirs index) (n int64) {
	for name := range c.mine {
		n += mine[name].size
	}
	for name := range c.theirs {
		n += theirs[name].size
	}
	return n
}

// group is the name of a database for the files that belong to it, and are of use
// together only.
func group(name string) string {
	for _, of := range []string{"-wal", "-shm", "-journal"} {
		if db, ok := strings.CutSuffix(name, of); ok {
			return db
		}
	}
	return name
}

func same(names map[string]bool, a, b index) bool {
	for name := range names {
		x, inA := a[name]
		y, inB := b[name]
		if inA != inB || inA && !x.same(y) {
			return false
		}
	}
	return true
}

// newest is when the last of some was written; none is before all.
func newest(names map[string]bool, in index) (last time.Time) {
	for name := range names {
		if e, there := in[name]; there && e.time.After(last) {
			last = e.time
		}
	}
	return last
}

// only copies those of an archive's entries that were chosen.
func (f Filter) only(out *tar.Writer, in io.Reader, chosen map[string]bool) error {
	drop := f.Drop
	f.Drop = func(name string) bool { return drop(name) || !chosen[name] }
	_, err := f.Copy(out, in)
	return err
}
