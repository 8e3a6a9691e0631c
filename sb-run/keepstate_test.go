package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const stateful = `image = ["img"]
[state]
paths = ["~/.claude", "~/.claude.json"]
leave = ["~/.claude/cache"]
seed = ["~/.claude/settings.json", "~/.claude/projects/{project}/*.jsonl"]
[[file]]
path = "~/.claude.json"
merge = true
text = '{"projects":{"{workspace}":{"t":true}},"k":["{env:KEY}"],"none":"{env:NONE}"}'
`

// pack has the stand-in's guest hand over these files, of names and text in turn.
func (s *stage) pack(words ...string) {
	s.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(words); i += 2 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: words[i], Mode: 0o600, Size: int64(len(words[i+1]))}); err != nil {
			s.t.Fatal(err)
		}
		w.Write([]byte(words[i+1]))
	}
	w.Close()
	s.put("packed", b.String())
}

// brought are the files that the last guest was sent, as NAME=TEXT.
func (s *stage) brought() string {
	var all []string
	for _, u := range s.unpacked() {
		all = append(all, u.Name+"="+u.Text)
	}
	os.Remove(filepath.Join(s.dir, "unpacked"))
	return strings.Join(all, " ")
}

// TestState: it begins with the host's files, of this directory; what the guest has
// at the end is what the next one begins with, whatever the command's exit code; not
// kept are what lies elsewhere, and all of it where something cannot be; the host's
// files stay as they are.
func TestState(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.profile("mine", stateful)
	top := filepath.Dir(s.home)
	own := filepath.Join(top, ".claude")
	for name, text := range map[string]string{"settings.json": `{"env":{"K":"canary"},"m":1}`, ".credentials.json": "canary", "projects/-other/1.jsonl": "canary",
		"projects/" + strings.NewReplacer("/", "-", ".", "-", "_", "-").Replace(s.work) + "/2.jsonl": "mine"} {
		path := filepath.Join(own, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	project := ".claude/projects/" + strings.NewReplacer("/", "-", ".", "-", "_", "-").Replace(s.work) + "/2.jsonl=mine"
	merge := `.claude.json={"k":["v"],"none":null,"projects":{"` + s.work + `":{"t":true}}}` + "\n"
	seeded := ".claude/settings.json={\n  \"m\": 1\n}\n " + project + " " + merge
	run := func(want string, code int, flags ...string) result {
		t.Helper()
		got := s.run(append(append([]string{"mine", "-e", "KEY=v"}, flags...), "--", "sh", "-c", "exit "+string(rune('0'+code)))...)
		got.want(t, code)
		if b := s.brought(); b != want {
			t.Errorf("brought %q, want %q", b, want)
		}
		return got
	}
	s.pack(".claude/a", "1", ".claude/.credentials.json", "x", ".claude/cache", "x")
	run(seeded, 3).want(t, 3, "the state of mine begins with 2 of your files")
	run(".claude/a=1 "+merge, 0, "--no-state=false").want(t, 0, "!of your files")
	run(merge, 0, "--no-state")
	s.pack(".claude/b", "2", "../out", "x")
	run(".claude/a=1 "+merge, 0).want(t, 0, `the state of mine is not kept, and is as it was before: "../out": it lies outside of what is kept`)
	s.put("packed", "no archive")
	run(".claude/a=1 "+merge, 0).want(t, 0, "is not kept")
	s.pack(".claude/b", "2")
	run(".claude/a=1 "+merge, 0).want(t, 0, "!not kept")
	s.run("agents", "ls").want(t, 0, "!error")
	if ls := s.run("agents", "ls"); !strings.Contains(ls.stdout, "0.0M") {
		t.Errorf("agents ls: %q", ls.stdout)
	}
	run(".claude/b=2 "+merge, 0)
	s.run("agents", "reset", "mine").want(t, 0, "!error")
	run(seeded, 0)
	s.run("agents", "reset", "nosuch").want(t, 125, "nosuch is no profile")
	if text, err := os.ReadFile(filepath.Join(own, "settings.json")); string(text) != `{"env":{"K":"canary"},"m":1}` {
		t.Errorf("the host's own: %q, %v", text, err)
	}
	// A manifest that was printed has the same state; printing takes nothing.
	s.run("agents", "reset", "mine")
	printed := s.run("mine", "-e", "KEY=v", "--print", "--", "true")
	if err := os.WriteFile(filepath.Join(s.work, "p.toml"), []byte(printed.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if ls := s.run("agents", "ls"); strings.Contains(ls.stdout, "0.0M") {
		t.Errorf("printing seeded it: %q", ls.stdout)
	}
	s.run("p.toml").want(t, 0, "!error")
	if b := s.brought(); b != seeded {
		t.Errorf("by a manifest: brought %q", b)
	}
}

// TestBadState: paths that cannot be, in a profile and in a manifest.
func TestBadState(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for text, want := range map[string]string{
		"paths = [\"/etc\"]":                             `state: "/etc" is no path that begins with ~/`,
		"paths = [\"~/\"]":                               "is no path",
		"paths = [\"~/../x\"]":                           "is no path",
		"paths = [\"~/.a\"]\nseed = [\"~/.ssh/id_*\"]":   `"~/.ssh/id_*" lies in none of the paths`,
		"paths = [\"~/.a\"]\nleave = [\"~/.b\"]":         "lies in none of the paths",
		"paths = [\"~/.a\"]\nseed = [\"~/.a/[\"]":        "is no pattern",
		"paths = [\"~/.a\"]\nkeep = [\"~/.a/settings\"]": "unknown key state.keep",
	} {
		s.profile("bad", "image = [\"img\"]\n[state]\n"+text+"\n")
		s.run("bad", "--", "true").want(t, 125, want)
	}
	for name, text := range map[string]string{"x.toml": "run.state = \"../x\"\n", "y.toml": "run.state = \"nosuch\"\nmachine.base = \"/b\"\n"} {
		if err := os.WriteFile(filepath.Join(s.work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.run("x.toml", "--", "true").want(t, 125, `x.toml:1: run.state: "../x" is no name of a profile`)
	s.run("y.toml", "--", "true").want(t, 125, "the state of nosuch: nosuch is no profile")
}
