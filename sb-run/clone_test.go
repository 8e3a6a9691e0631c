package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClonePlan: with --clone the guest is given the git directory, read-only, and not
// the tree; a directory that is in no repository is refused.
func TestClonePlan(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run("shell", "--clone", "--print").want(t, 125, "it is in no git repository")
	s.run("img", "--clone", "--print").want(t, 125, "-w DIR names one")
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"remote", "add", "origin", "https://u:pass@git.example/x"},
		{"-c", "user.name=U", "-c", "user.email=u@e", "commit", "-q", "--allow-empty", "-m", "x"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = s.work, s.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	sub := filepath.Join(s.work, "sub")
	os.Mkdir(sub, 0o700)
	m := s.printed("shell", "--clone", "-w", sub)
	c := m.Run.Clone
	if c == nil || c.Dir != s.work || c.Branch != "main" || c.Copy || c.Origin != "https://git.example/x" || m.Run.Workdir != sub {
		t.Errorf("%+v in %s", c, m.Run.Workdir)
	}
	if len(m.Shares) != 1 || m.Shares[0].Host != s.work+"/.git" || !m.Shares[0].ReadOnly || m.Shares[0].Guest != cloneSource {
		t.Errorf("shares %+v", m.Shares)
	}
	if m := s.printed("shell"); m.Run.Clone != nil || len(m.Shares) != 1 || m.Shares[0].Host != s.work {
		t.Errorf("without: %+v %+v", m.Run.Clone, m.Shares)
	}
	s.run("fetch", "none-1").want(t, 125, "there is no work of none-1")
	s.run("fetch", "../x").want(t, 125, "no name of a sandbox")
	s.run("fetch", "--ls").want(t, 0)
}

// TestQuoteGit: git reads a value as it was.
func TestQuoteGit(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"plain", ` a "b" \c `, "x # y ; z", "two\nlines\t", "ü"} {
		cmd := exec.Command("git", "config", "--file", "-", "--get", "user.name")
		cmd.Stdin = strings.NewReader("[user]\n\tname = " + quoteGit(value) + "\n")
		if out, err := cmd.Output(); err != nil || strings.TrimSuffix(string(out), "\n") != value {
			t.Errorf("%q is read as %q: %v", value, out, err)
		}
	}
}
