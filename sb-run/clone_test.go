package main

import (
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sb/lib/manifest"
	"sb/lib/session"
	"sb/sb-run/repo"
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

// TestHideFromClone: of what the guest clones it sees what makes a clone, also of
// submodules, and nothing else: not the configuration, nor what comes there meanwhile.
func TestHideFromClone(t *testing.T) {
	t.Parallel()
	common := t.TempDir()
	for _, path := range []string{"objects", "refs/heads", "modules/a/objects", "modules/a/refs/heads/config", "modules/lib/b/objects", "modules/lib/b/modules/c/objects", "modules/hooks/objects", "modules/a/git-crypt"} {
		if err := os.MkdirAll(filepath.Join(common, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"", "modules/a", "modules/lib/b", "modules/lib/b/modules/c", "modules/hooks"} {
		for _, name := range []string{"HEAD", "config", "packed-refs"} {
			if err := os.WriteFile(filepath.Join(common, dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	hides := func(of *repo.Repo, name string) bool {
		for _, pattern := range hideFromClone(of) {
			if err := manifest.CheckPattern(pattern); err != nil {
				t.Error(err)
			}
			// A pattern holds for all that lies below it.
			parts := strings.Split("/"+strings.ToLower(name), "/")
			for n := 2; n <= len(parts); n++ {
				if ok, _ := path.Match(strings.ToLower(pattern), strings.Join(parts[:n], "/")); ok {
					return true
				}
			}
		}
		return false
	}
	r := &repo.Repo{Common: common}
	for _, name := range []string{"HEAD", "objects", "objects/pack/pack-1.pack", "objects/info/config", "refs", "refs/heads/config", "refs/heads/hooks/logs", "packed-refs", "shallow", "modules",
		"modules/a", "modules/a/HEAD", "modules/a/objects/x", "modules/a/refs/heads/config", "modules/lib/b/HEAD", "modules/lib/b/refs/heads/config", "modules/lib/b/modules/c/packed-refs", "modules/hooks/HEAD"} {
		if hides(r, name) {
			t.Errorf("%s is hidden, and makes the clone", name)
		}
	}
	for _, name := range []string{"config", "config.lock", "config.worktree", "hooks", "logs/HEAD", "FETCH_HEAD", "HEAD.lock", "h", "object", "objects2", "refs.bak", "packed-refs.lock", "packed", "shallow.lock", "git-crypt/keys/default",
		"credentials", "index", "worktrees/x/HEAD", "modules2", "\u00fc", "-", "]", "modules/a/config", "modules/a/git-crypt", "modules/lib/b/config", "modules/lib/b/modules/c/config", "modules/hooks/config"} {
		if !hides(r, name) {
			t.Errorf("%s is not hidden", name)
		}
	}
	empty := &repo.Repo{Common: common, Empty: true}
	if !hides(empty, ".git/config") || hides(empty, "config") {
		t.Errorf("without a commit: %v", hideFromClone(empty))
	}
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

// TestCommitTime: a guest that does not end when it is to commit is given up, and one
// that does is not.
func TestCommitTime(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	go session.Serve(far, func(c session.Command, sv *session.Served) {
		if c.Args[0] == "quick" {
			sv.Exit(session.Status{})
			return
		}
		<-t.Context().Done()
	})
	h, err := session.NewHost(near)
	if err != nil {
		t.Fatal(err)
	}
	if err := commitAll(t.Context(), h, session.Command{Args: []string{"quick"}}, 10*time.Second); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := commitAll(t.Context(), h, session.Command{Args: []string{"slow"}}, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "more than 100ms") {
		t.Errorf("one that does not end: %v", err)
	}
}
