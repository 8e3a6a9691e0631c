package undo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// Plan is what is to be done to make a tree, or paths of it, what a record has.
type Plan struct {
	target, now *Record
	paths       []string
	steps       []Change  // Old is what is put back, New what is there
	Stays       []Change  // new since the record, and not to be removed
	Unknown     []Skipped // not recorded then or now, and left as it is
	Blocked     []Left    // recorded then, and now what cannot be recorded and would be lost
}

// Left is what could not be done, and is as it was.
type Left struct{ Path, Why string }

// MakePlan plans what makes of now, the tree as it is, what target was, at paths
// and beneath them; no paths are all. What is new since is removed if remove says
// so.
func MakePlan(target, now *Record, paths []string, remove bool) *Plan {
	p := &Plan{target: target, now: now, paths: paths}
	changes := compare(target, now)
	needed := map[string]bool{}
	for _, c := range changes {
		switch {
		case !Within(c.Path, paths):
		case c.Status == Added && !remove:
			p.Stays = append(p.Stays, c)
		default:
			needed[c.Path] = true
			for dir := c.Path; dir != ""; {
				dir = parent(dir)
				needed[dir] = needed[dir] || c.Old != nil
			}
		}
	}
	for _, c := range changes {
		// What is above is needed only where there is no directory.
		if needed[c.Path] && (Within(c.Path, paths) || c.Status == Deleted || c.Status == Retyped) {
			p.steps = append(p.steps, c)
		}
	}
	for _, s := range unknowns(target, now) {
		switch {
		case target.at(s.Path) != nil && (Within(s.Path, paths) || slices.ContainsFunc(paths, func(p string) bool { return Within(p, []string{s.Path}) })):
			p.Blocked = append(p.Blocked, Left{s.Path, "what is there now cannot be recorded (" + s.Why + "), and would be lost: remove it, or make it readable, and restore again"})
		case Within(s.Path, paths):
			p.Unknown = append(p.Unknown, s)
		}
	}
	return p
}

// Changes are the steps that people are told of: all but changes of times.
func (p *Plan) Changes() []Change {
	return slices.DeleteFunc(slices.Clone(p.steps), func(c Change) bool { return c.Status == touched })
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool { return len(p.steps) == 0 }

// restorer carries out a plan.
type restorer struct {
	ctx     context.Context
	store   *Store
	plan    *Plan
	root    int
	now     map[string]*Entry
	target  map[string]*Entry
	changed map[string]bool // each path of a step: whether its inode is to be another
	leaders map[string]string
	made    map[string]Identity // the files that were put back
	visited map[string]uint32   // directories in which something changed, with their permissions before
	touched map[inode]Time      // the times that files were given in place
	failed  map[string]bool
	left    []Left
}

// Restore carries out a plan. The tree must be recorded as it is by then, as
// p's record of now: what is replaced or removed is only what that one has. It
// returns what it left, because it had changed meanwhile or could not be changed.
func (s *Store) Restore(ctx context.Context, p *Plan) ([]Left, error) {
	root, err := openTree(p.target.Tree)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(root), p.target.Tree)
	defer f.Close()
	if err := unix.Flock(root, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, say.WithHint(fmt.Errorf("restore %s: it is being restored already (%w)", p.target.Tree, err), "wait until that has ended")
	}
	r := &restorer{ctx: ctx, store: s, plan: p, root: root, now: p.now.byPath(), target: p.target.byPath(), leaders: p.target.leaders(),
		changed: map[string]bool{}, made: map[string]Identity{}, visited: map[string]uint32{}, touched: map[inode]Time{}, failed: map[string]bool{}}
	for _, c := range p.steps {
		r.changed[c.Path] = c.Status != Moded && c.Status != touched
	}
	r.left = slices.Clone(p.Blocked)
	err = r.all()
	return r.left, errors.Join(err, s.settle(f, true))
}

// all removes first, from below, then puts back, from above, and then the
// directories' own times and permissions, from below.
func (r *restorer) all() error {
	defer r.finish()
	steps := r.plan.steps
	for i := len(steps) - 1; i >= 0; i-- {
		if c := &steps[i]; gives(c) {
			r.do(c, r.remove)
		}
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
	}
	for i := range steps {
		c := &steps[i]
		switch {
		case c.Old == nil:
		case c.Old.Kind == Dir:
			r.do(c, r.dir)
		case c.Old.Kind == Link:
			r.do(c, r.link)
		case c.Status == Moded || c.Status == touched:
			r.do(c, r.touch)
		default:
			r.do(c, r.file)
		}
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
	}
	return nil
}

// gives reports whether what is there must go before anything can come.
func gives(c *Change) bool {
	return c.Status == Added || c.Status == Retyped && (c.Old.Kind == Dir || c.New.Kind == Dir)
}

// do is one step, in the directory of its path. A step that fails leaves the path.
func (r *restorer) do(c *Change, step func(at int, name string, c *Change) error) {
	if r.failed[c.Path] {
		return
	}
	dir, name := split(c.Path)
	at, err := walk(r.root, dir)
	if c.Path == "" {
		name = "."
	}
	if err == nil {
		if err = r.visit(at, dir); err == nil {
			err = step(at, name, c)
		}
		unix.Close(at)
	}
	if err != nil {
		r.leave(c.Path, err)
	}
}

// leave notes a path that is left as it is.
func (r *restorer) leave(path string, err error) {
	if !r.failed[path] {
		r.failed[path] = true
		r.left = append(r.left, Left{path, reason(err)})
	}
}

func reason(err error) string {
	switch err {
	case unix.ENOTEMPTY, unix.EISDIR:
		return "a directory is there that holds what is not to be removed"
	case unix.ELOOP, unix.ENOTDIR:
		return "something else than a directory is above it"
	}
	return cause(err)
}

// visit notes a directory in which something is about to change, and lets its
// owner do so.
func (r *restorer) visit(at int, dir string) error {
	if _, ok := r.visited[dir]; ok {
		return nil
	}
	st, err := stat(at)
	if err != nil {
		return err
	}
	r.visited[dir] = permissions(&st)
	if permissions(&st)&0o300 != 0o300 {
		return unix.Fchmod(at, permissions(&st)|0o700)
	}
	return nil
}

// finish gives the directories what the record has of them, where they are in the
// plan, or what they had.
func (r *restorer) finish() {
	dirs := make([]string, 0, len(r.visited))
	for dir := range r.visited {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range slices.Backward(dirs) {
		e := r.target[dir]
		if _, step := r.changed[dir]; e != nil && (e.Kind != Dir || !step && !Within(dir, r.plan.paths)) {
			e = nil
		}
		if e == nil && r.visited[dir]&0o300 == 0o300 {
			continue
		}
		fd, err := walk(r.root, dir)
		if err == nil {
			if e == nil {
				err = unix.Fchmod(fd, r.visited[dir])
			} else if err = setAll(fd, e); err == nil {
				err = setTime(fd, ".", e.Mtime)
			}
			unix.Close(fd)
		}
		// One that was new is gone, or something else is in its place.
		if err != nil && err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP {
			r.leave(dir, err)
		}
	}
}
