package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sb/lib/say"
)

// Imported is a branch that came into the user's repository.
type Imported struct {
	Ref string // refs/remotes/sb/NAME/BRANCH, safe to print
	ID  string
}

// Import puts the work of a run into the repository that it is of, as
// refs/remotes/sb/NAME/*: one branch, or all if only is "". Objects and these names are
// all that changes there. It returns the git directory too.
func (d Dir) Import(ctx context.Context, name, only string) (to string, done []Imported, err error) {
	dir := d.path(name)
	text, err := os.ReadFile(filepath.Join(dir, from))
	if err != nil {
		return "", nil, say.WithHint(fmt.Errorf("there is no work of %s", name), "sb-run fetch --ls lists what is kept")
	}
	to = strings.TrimSpace(string(text))
	all, err := branches(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	var names []string
	for _, b := range all {
		names = append(names, shownName(b.name))
	}
	if only != "" {
		i := slices.IndexFunc(all, func(b branch) bool { return only == b.name || only == shownName(b.name) })
		if i < 0 {
			return "", nil, fmt.Errorf("the work of %s has no branch %s (there is: %s)", name, only, strings.Join(names, ", "))
		}
		all = all[i : i+1]
	}
	if err := objects(ctx, dir, to, all); err != nil {
		return "", nil, fmt.Errorf("put the objects into %s: %w", to, err)
	}
	var orders strings.Builder
	for _, b := range all {
		done = append(done, Imported{"refs/remotes/sb/" + name + "/" + shownName(b.name), b.id})
		fmt.Fprintf(&orders, "update %s %s\n", done[len(done)-1].Ref, b.id)
	}
	cmd := command(ctx, to, "-c", "core.hooksPath=/dev/null", "update-ref", "--stdin")
	if _, err := run(cmd, orders.String()); err != nil {
		return "", nil, say.WithHint(fmt.Errorf("name the branches in %s: %w", to, err), "none was named; sb-run fetch %s BRANCH brings one: %s", name, strings.Join(names, ", "))
	}
	return to, done, nil
}

// shownName is the name of a branch in the user's repository. git forbids no control
// character beyond ASCII in a name, and programs that list names write them as they are:
// what could act on a terminal or reorder a line stands there as in a URL (%C2%9B).
func shownName(branch string) string {
	var b strings.Builder
	for rest := branch; rest != ""; {
		r, n := utf8.DecodeRuneInString(rest)
		if unicode.IsPrint(r) && (r != utf8.RuneError || n > 1) {
			b.WriteString(rest[:n])
		} else {
			for _, c := range []byte(rest[:n]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
		rest = rest[n:]
	}
	return b.String()
}

// objects puts what the branches need into the user's repository. The configuration is
// that of ours: his repository is a directory of objects here.
func objects(ctx context.Context, dir, to string, all []branch) error {
	var tips strings.Builder
	for _, b := range all {
		tips.WriteString(b.id + "\n")
	}
	if _, err := git(ctx, dir, "", "rev-parse", "-q", "--verify", base); err == nil {
		tips.WriteString("^" + base + "\n")
	}
	inTheirs := "GIT_OBJECT_DIRECTORY=" + filepath.Join(to, "objects")
	take := command(ctx, dir, "index-pack", "--strict", "--stdin")
	take.Env = append(take.Env, inTheirs)
	pack := command(ctx, dir, "pack-objects", "-q", "--revs", "--stdout", "--delta-base-offset")
	pack.Stdin = strings.NewReader(tips.String())
	said := &last{}
	pack.Stderr = said
	r, err := pack.StdoutPipe()
	if err != nil {
		return err
	}
	take.Stdin = r
	if err := pack.Start(); err != nil {
		return err
	}
	took := &last{}
	take.Stderr = took
	err = take.Run()
	if perr := pack.Wait(); perr != nil {
		return fmt.Errorf("git pack-objects: %w: %s", perr, say.Safe(said.String()))
	}
	if err != nil {
		return fmt.Errorf("git index-pack: %w: %s", err, say.Safe(took.String()))
	}
	check := command(ctx, dir, "rev-list", "--objects", "--quiet", "--stdin")
	check.Env = append(check.Env, inTheirs)
	if _, err := run(check, tips.String()); err != nil {
		return errors.Join(errors.New("something that they need is not there any more"), err)
	}
	return nil
}
