//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
)

// TestBelow: what a project file says of its directory, of one that lies below it.
func TestBelow(t *testing.T) {
	for _, c := range []struct {
		pattern, dir, rest string
		whole              bool
	}{
		{"/a/b", "", "/a/b", false}, {"a/b", "", "a/b", false}, {".env*", "", ".env*", false},
		{"/a/b", "a", "/b", false}, {"a/b/c", "a/b", "/c", false}, {"/A/b", "a", "/b", false}, {"/*/x", "sub", "/x", false},
		{"/a/b", "a/b", "", true}, {"/a", "a/b", "", true}, {"/a/b", "x", "", false}, {"/a/b", "a/c", "", false}, {"/a/b/c", "a/c", "", false},
		{"Makefile", "sub", "Makefile", false}, {".env*", "a/.env.d/b", ".env*", true},
		{"/x", "..", "/top/x", false}, {"x", "..", "x", false}, // a copy may be of more
	} {
		rest, whole := below(c.pattern, "/top", filepath.Join("/top", c.dir))
		if c.dir == ".." {
			rest, whole = below(c.pattern, "/up/top", "/up")
		}
		if rest != c.rest || whole != c.whole {
			t.Errorf("%q in %q: %q, %v", c.pattern, c.dir, rest, whole)
		}
	}
}

// git runs git in the working directory.
func (s *stage) git(args ...string) {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = s.work, s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("git %v: %v %s", args, err, out)
	}
}

func (s *stage) project(text string) string {
	s.t.Helper()
	file := filepath.Join(s.work, projectName)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *stage) share(host string, args ...string) manifest.Share {
	s.t.Helper()
	for _, share := range s.printed(args...).Shares {
		if share.Host == host {
			return share
		}
	}
	s.t.Fatalf("%v do not share %s", args, host)
	return manifest.Share{}
}

// TestProjectNarrows: what a file that nobody accepted protects, hides and makes
// read-only is so, in the directories below it too; without the file it is not.
func TestProjectNarrows(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	sub := filepath.Join(s.work, "sub")
	os.Mkdir(sub, 0o700)
	has := func(share manifest.Share) string {
		var all []string
		for _, p := range []string{"Makefile", "/sub/gen", "/gen"} {
			if slices.Contains(share.Protected, p) {
				all = append(all, p)
			}
		}
		return strings.Join(append(append(all, "hidden:"), share.Hidden...), " ")
	}
	if got := has(s.share(s.work, "img", "-w", ".")); got != "hidden:" {
		t.Errorf("control: %s", got)
	}
	s.project("[workspace]\nprotect = [\"Makefile\", \"/sub/gen\"]\nhide = [\".env*\", \"/sub/keys\"]\n")
	for _, flags := range [][]string{{}, {"--no-protect"}, {"--protect", "Makefile", "--hide", ".env*"}} {
		if got := has(s.share(s.work, append([]string{"img", "-w", "."}, flags...)...)); got != "Makefile /sub/gen hidden: .env* /sub/keys" {
			t.Errorf("%v: %s", flags, got)
		}
	}
	if got := has(s.share(sub, "img", "-w", "sub")); got != "Makefile /gen hidden: .env* /keys" {
		t.Errorf("below: %s", got)
	}
	s.project("[workspace]\nprotect = [\"/sub\"]\n")
	if !s.share(sub, "img", "-w", "sub").ReadOnly || s.share(s.work, "img", "-w", ".").ReadOnly {
		t.Error("what is protected whole is not read-only, or what is above it is")
	}
	s.project("[workspace]\nhide = [\"/sub\"]\n")
	s.run("img", "-w", "sub", "--print").want(t, 125, "it hides "+sub+", which is the workspace")
	s.project("[workspace]\nhide = [\"../x\"]\n")
	s.run("img", "-w", ".", "--print").want(t, 125, projectName+": workspace: hide: the pattern")

	s.project("[workspace]\nread_only = true\n")
	os.Mkdir(filepath.Join(s.work, "target"), 0o700)
	if got := s.share(s.work, "img", "-w", ".", "--private", "target", "--workdir", "/"); !got.ReadOnly || !slices.Contains(got.Private, "target") {
		t.Errorf("read-only: %+v", got)
	}
	s.run("img", "-w", ".", "--private", "none", "--print").want(t, 125, "the private directory none cannot be made in it")
	s.run("img", "-w", ".", "--undo", "--", "true").want(t, 0, "nothing is recorded: the guest cannot write the working directory")
}

// TestProjectClone: of a clone the denies and limits of a project file hold. What is
// hidden is hidden from what is copied, and that a commit has it all the same is said.
func TestProjectClone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.git("init", "-q", "-b", "main")
	s.git("-c", "user.name=U", "-c", "user.email=u@e", "commit", "-q", "--allow-empty", "-m", "x")
	s.project("cpus = 1\n[rules]\nallow = [\"a.example\"]\ndeny = [\"b.example\"]\n[workspace]\nread_only = true\nhide = [\".env*\"]\nprotect = [\"x\"]\n")
	os.Mkdir(filepath.Join(s.work, "x"), 0o700) // for --private: the workspace is read-only
	got := s.run("shell", "--clone", "--print")
	got.want(t, 0, "hides .env*: what is committed of it is in the clone all the same", "is not accepted")
	if !strings.Contains(got.stdout, `deny = ["b.example"]`) || !strings.Contains(got.stdout, "cpus = 1") || strings.Contains(got.stdout, "a.example") {
		t.Errorf("%s", got.stdout)
	}
	for _, flag := range []string{"--protect=x", "--hide=x", "--private=x", "--no-protect"} {
		s.run("shell", "--clone", flag, "--print").want(t, 125, "with --clone none is")
		s.run("shell", flag, "--print").want(t, 0)
	}
	os.RemoveAll(filepath.Join(s.work, ".git"))
	s.git("init", "-q", "-b", "main")
	if got := s.share(s.work, "shell", "--clone"); !slices.Contains(got.Hidden, ".env*") || !got.ReadOnly {
		t.Errorf("a repository without a commit: %+v", got)
	}
}

// TestProjectIsKept: the guest can change the file by none of the shares that it lies
// in, whatever the workspace is.
func TestProjectIsKept(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	sub := filepath.Join(s.work, "sub")
	os.Mkdir(sub, 0o700)
	manifestOf := func(args ...string) *manifest.Manifest {
		t.Helper()
		got := s.run(append(args, "--", "sh", "-c", "cat "+s.home+"/state/run/*/sandbox.toml")...)
		got.want(t, 0, "!read-only in the guest")
		m, err := manifest.Parse("run", []byte(got.stdout))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, file := range []bool{false, true} {
		if file {
			s.project("cpus = 1\n")
		}
		for _, share := range manifestOf("img", "-w", sub, "-v", s.work+":/up", "--no-protect").Shares {
			if got := slices.Contains(share.Protected, "/"+projectName); got != (file && share.Guest == "/up") {
				t.Errorf("file %v: %+v", file, share)
			}
		}
	}
	if got := s.share(s.work, "img", "-w", "."); !slices.Contains(got.Protected, projectName) {
		t.Error("a file further down would not be protected")
	}
}

// TestTrust: what accepting widens is shown before the question; then it holds, for
// these bytes at this place.
func TestTrust(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const text = "image = \"img\"\n# \u202eback\n[rules]\nallow = [\"a.example\", \"*.b.example\"]\ndeny = [\"c.example\"]\n"
	file := s.project(text)
	allowed := func(dir string) bool {
		t.Helper()
		return slices.Contains(s.printed("img", "-w", dir).Rules.Allow, "a.example")
	}
	const wide = "accepted, it allows a.example, *.b.example, has profiles run in the image img\n"
	got := s.run("trust", "--show")
	got.want(t, 0, file+" is not accepted", wide)
	if strings.Contains(got.stdout, "\u202e") || !strings.Contains(got.stdout, "deny = ") {
		t.Errorf("%q", got.stdout)
	}
	s.run("trust", "--no-input").want(t, 125, wide, "nobody can be asked")
	answer := func(word string) result {
		t.Helper()
		r, master, _ := s.onTerminal("trust")
		r.untilScreen("as it is? [y/N]")
		if shown := r.out.String(); !strings.Contains(shown, "accepted, it allows a.example, *.b.example") || allowed(".") {
			t.Errorf("before the question: %q, allowed %v", shown, allowed("."))
		}
		master.WriteString(word + "\n")
		return r.wait()
	}
	answer("n").want(t, 125)
	if allowed(".") {
		t.Error("it was accepted by n")
	}
	answer("y").want(t, 0)
	if !allowed(".") {
		t.Error("it was not accepted by y")
	}
	s.run("trust").want(t, 0, " is accepted\n", wide)
	other := filepath.Join(s.work, "other")
	os.Mkdir(other, 0o700)
	os.WriteFile(filepath.Join(other, projectName), []byte(text), 0o600)
	if allowed(other) {
		t.Error("the same bytes at another place are accepted")
	}
	s.project(text + "\n")
	if allowed(".") {
		t.Error("other bytes are accepted")
	}
	s.project(text)
	if !allowed(".") {
		t.Error("control: the accepted bytes are not")
	}
	s.project("cpus = 1\n")
	s.run("trust", "--show").want(t, 0, "it narrows, which holds in any case")
}
