package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sb/sb-run/leftovers"
)

// TestLeft: the end of a run lists what it left that could run on the host, in
// bounds and safe on a terminal; a run that left no such thing says nothing.
func TestLeft(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run("img", "-w", s.work, "--", "sh", "-c", "echo x >plain; mkdir -p .git/hooks").want(t, 0, "!could run")
	s.run("img", "-w", s.work, "--", "sh", "-c", "cd "+s.work+"; echo x >.git/hooks/pre-commit; ln -s /etc/passwd out; mkdir -p \"$(printf 'a\\033[2Jb')\"; echo x >\"$(printf 'a\\033[2Jb')/.envrc\"").
		want(t, 0, "could run on this host:\n", `".git/hooks/pre-commit" (new): git runs it`, `"out" (new): a link that leads out, to "/etc/passwd"`, `"a\x1b[2Jb/.envrc" (new)`, "!\x1b")
	s.run("img", "-w", s.work, "--", "true").want(t, 0, "!could run")
	s.run("img", "-v", s.work+":/data:ro", "--", "sh", "-c", "echo y >"+filepath.Join(s.work, ".envrc")).want(t, 0, "!could run") // it could not
	os.Remove(filepath.Join(s.work, ".envrc"))
	s.run("img", "-w", s.work, "--", "sh", "-c", "cd "+s.work+"; for i in $(seq 30); do mkdir d$i; echo x >d$i/.envrc; done").
		want(t, 0, "sb-run:   and 25 more of these\n")
	s.run("img", "-w", s.work, "--", "sh", "-c", "cd "+s.work+"; for i in $(seq 25); do mkdir -p .0/$i; echo x >.0/$i/.npmrc; done; echo ref: x >HEAD").
		want(t, 0, `"HEAD" (new): git takes`, `".0/1/.npmrc" (new)`, "sb-run:   and 20 more of these\n")
}

// TestLeftChosen: of many kinds the worst are shown, in each directory, and the others
// are counted.
func TestLeftChosen(t *testing.T) {
	change := func(rank int, kind, path string) leftovers.Change {
		return leftovers.Change{Path: path, Item: leftovers.Item{Kind: kind, Rank: rank}}
	}
	var flood, other []leftovers.Change
	for i := range 3 * maxLeft {
		flood = append(flood, change(2, fmt.Sprint("kind ", i/2), fmt.Sprint(i)))
	}
	other = append(other, change(0, "git", "a"), change(1, "editor", "b"), change(1, "editor", "c"))
	first, second := byKind(flood), byKind(other)
	more := choose(slices.Concat(first, second))
	if len(second) != 2 || second[0].shown != 1 || second[1].shown != 1 {
		t.Errorf("what is worse is not shown: %+v", second)
	}
	shown := 0
	for _, k := range slices.Concat(first, second) {
		shown += k.shown
	}
	if shown != maxLeft || more != 2*(3*maxLeft/2-(maxLeft-2)) {
		t.Errorf("%d are shown, and %d more", shown, more)
	}
	few := byKind(other)
	if more := choose(few); more != 0 || few[1].shown != 2 {
		t.Errorf("control: %d more, %+v", more, few[1])
	}
}
