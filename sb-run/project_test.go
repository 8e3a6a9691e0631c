package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProject: a project file that nobody accepted narrows and does not widen; one
// that was accepted does both, until it changes.
func TestProject(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	file := filepath.Join(s.work, projectName)
	text := "profile = \"shell\"\nimage = \"img\"\ncpus = 1\n[rules]\nallow = [\"a.example\"]\ndeny = [\"b.example\"]\n[workspace]\nread_only = true\n"
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	print := func() string {
		r := s.run("img", "-w", ".", "--print")
		r.want(t, 0)
		return r.stdout + r.stderr
	}
	if got := print(); strings.Contains(got, "b.example") || strings.Contains(got, "read_only = true") || !strings.Contains(got, "cpus = 2") {
		t.Errorf("control: %s", got)
	}
	put(text)
	got := print()
	if !strings.Contains(got, `deny = ["b.example"]`) || !strings.Contains(got, "cpus = 1") || !strings.Contains(got, "read_only = true") || strings.Contains(got, "a.example") || !strings.Contains(got, "is not accepted") {
		t.Errorf("not accepted: %s", got)
	}
	s.run().want(t, 125, "is not accepted")
	s.run("trust").want(t, 125, "nobody can be asked") // no terminal
	s.run("trust", "--no-input").want(t, 125, "nobody can be asked")
	trusted(t, s, file)
	if got := print(); !strings.Contains(got, `allow = ["a.example"]`) || strings.Contains(got, "is not accepted") {
		t.Errorf("accepted: %s", got)
	}
	s.run("--print").want(t, 0) // the profile that it names
	put(text + "# more\n")
	if got := print(); strings.Contains(got, "a.example") {
		t.Errorf("changed: %s", got)
	}
	for _, bad := range []string{"x = 1\n", "\xff", strings.Repeat("#", maxProject+1), "[rules]\ndeny = [\"-\"]\n", "profile = \"../x\"\n"} {
		put(bad)
		s.run("img", "-w", ".", "--print").want(t, 125, projectName)
	}
	os.Remove(file)
	os.Symlink("/etc/passwd", file)
	s.run("img", "-w", ".", "--print").want(t, 125, "a link is not followed")
}

// TestProjectAbove: what a file further up narrows holds, whatever lies nearer by: what a
// guest can make there takes nothing of it away.
func TestProjectAbove(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	inner := filepath.Join(s.work, "in", "deep")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	narrow := "cpus = 1\nmemory = \"512m\"\n[rules]\nallow = [\"a.example\"]\ndeny = [\"b.example\"]\n[workspace]\nread_only = true\nprotect = [\"kept\", \"/in/deep/one\"]\nhide = [\"unseen\"]\n"
	put(filepath.Join(s.work, projectName), narrow)
	trusted(t, s, filepath.Join(s.work, projectName))
	print := func() string {
		r := s.run("img", "-w", inner, "--print")
		r.want(t, 0)
		return r.stdout + r.stderr
	}
	holds := func(when string, allows bool) {
		t.Helper()
		got := print()
		for _, want := range []string{"b.example", "cpus = 1", `memory = "512m"`, "read_only = true", `"kept"`, `"/one"`, `"unseen"`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %s in %s", when, want, got)
			}
		}
		if strings.Contains(got, "a.example") != allows {
			t.Errorf("%s: it allows: %v, want %v", when, !allows, allows)
		}
	}
	holds("alone", true)
	put(filepath.Join(inner, projectName), "cpus = 4\nmemory = \"1g\"\n[rules]\ndeny = [\"c.example\"]\n")
	holds("a file nearer by", false)
	if !strings.Contains(print(), "c.example") {
		t.Error("the nearest file does not hold")
	}
	os.Remove(filepath.Join(inner, projectName))
	if err := os.Mkdir(filepath.Join(inner, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	holds("a repository nearer by", false)
	s.run("trust", "--show", inner).want(t, 125, "there is no "+projectName)
	put(filepath.Join(s.work, projectName), "x = 1\n")
	s.run("img", "-w", inner, "--print").want(t, 125, projectName)
}

// trusted remembers a file as sb-run trust does when it is told yes.
func trusted(t *testing.T, s *stage, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.home, "config", "trusted")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := projectDigest(file, text)
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestInit: a project file is written once, and is one.
func TestInit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run("init").want(t, 0)
	s.run("init").want(t, 125, "there is a .sb.toml here")
	s.run("trust", "--show").want(t, 0, "is not accepted")
	s.run("init", "--profile", "absent").want(t, 125, "absent is no profile", "there is: claude")
}

// TestCeilings: what a project file takes from a flag is said; what it takes from what
// is so without a word is not.
func TestCeilings(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	file := filepath.Join(s.work, projectName)
	if err := os.WriteFile(file, []byte("memory = \"512m\"\ncpus = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("img", "-w", ".", "--print").want(t, 0, "!the most by")
	s.run("img", "-w", ".", "--memory", "256m", "--print").want(t, 0, "!the most by")
	s.run("img", "-w", ".", "--memory", "1g", "--print").want(t, 0, "--memory: the machine has 512m, which is the most by "+file)
	s.run("img", "-w", ".", "--cpus", "2", "--print").want(t, 0, "--cpus: the machine has 1, which is the most by "+file)
}
