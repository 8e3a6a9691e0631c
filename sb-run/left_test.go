package main

import (
	"os"
	"path/filepath"
	"testing"
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
		want(t, 0, "sb-run:   and 10 more\n")
}
