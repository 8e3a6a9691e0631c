package repo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// run runs git in a directory, as a user would.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=U", "-c", "user.email=u@example.org", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func made(t *testing.T, name string) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, name)
	os.Mkdir(dir, 0o755)
	run(t, dir, "init", "-q", "-b", "main")
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, dir string) *Repo {
	t.Helper()
	r, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFind: each shape of a repository is read as git reads it.
func TestFind(t *testing.T) {
	dir := made(t, "a")
	if r := find(t, dir); !r.Empty || r.Branch != "main" || r.Commit != "" || r.Top != dir || r.Common != dir+"/.git" {
		t.Errorf("without commits: %+v", r)
	}
	write(t, dir+"/sub/file", "1")
	run(t, dir, "add", ".")
	run(t, dir, "commit", "-qm", "one")
	run(t, dir, "remote", "add", "origin", "https://me:token@git.example.org/x.git")
	run(t, dir, "config", "user.name", `A "B" ü`)
	head := run(t, dir, "rev-parse", "HEAD")
	r := find(t, dir+"/sub")
	if r.Empty || r.Commit != head || r.Top != dir || r.Origin != "https://git.example.org/x.git" || !r.Secret || r.Name != `A "B" ü` || r.Format != "sha1" {
		t.Errorf("a directory of it: %+v", r)
	}
	run(t, dir, "pack-refs", "--all")
	if r := find(t, dir); r.Commit != head || r.Empty {
		t.Errorf("packed: %+v", r)
	}
	tree := filepath.Join(filepath.Dir(dir), "tree")
	run(t, dir, "worktree", "add", "-q", "-b", "topic/x", tree)
	if r := find(t, tree); r.Branch != "topic/x" || r.Commit != head || r.Common != dir+"/.git" || r.Top != tree {
		t.Errorf("a worktree: %+v", r)
	}
	run(t, dir, "checkout", "-q", "--detach")
	if r := find(t, dir); r.Branch != "" || r.Commit != head {
		t.Errorf("no branch: %+v", r)
	}
	outer := made(t, "outer")
	run(t, outer, "submodule", "add", "-q", dir, "in")
	if r := find(t, outer+"/in"); r.Common != outer+"/.git/modules/in" || r.Top != outer+"/in" {
		t.Errorf("a submodule: %+v", r)
	}
	if _, err := Find(filepath.Dir(dir)); !errors.Is(err, ErrNone) {
		t.Errorf("none: %v", err)
	}
}

// TestHostile: what a guest can write into a tree leads to no other repository of
// the user's, runs nothing and does not hang; the same tree without it is read.
func TestHostile(t *testing.T) {
	private := made(t, "private")
	write(t, private+"/f", "secret")
	run(t, private, "add", ".")
	run(t, private, "commit", "-qm", "secret")
	for name, plant := range map[string]func(t *testing.T, dir string){
		"a file that points elsewhere": func(t *testing.T, dir string) {
			os.Rename(dir+"/.git", dir+"/was")
			write(t, dir+"/.git", "gitdir: "+private+"/.git\n")
		},
		"a link": func(t *testing.T, dir string) {
			os.Rename(dir+"/.git", dir+"/was")
			os.Symlink(private+"/.git", dir+"/.git")
		},
		"a worktree of its own making": func(t *testing.T, dir string) {
			os.Rename(dir+"/.git", dir+"/was")
			write(t, dir+"/fake/worktrees/x/gitdir", dir+"/.git\n")
			write(t, dir+"/fake/worktrees/x/commondir", private+"/.git\n")
			write(t, dir+"/fake/worktrees/x/HEAD", "ref: refs/heads/main\n")
			os.Symlink(private+"/.git/config", dir+"/fake/config")
			write(t, dir+"/.git", "gitdir: "+dir+"/fake/worktrees/x\n")
		},
		"a configuration that is a link out": func(t *testing.T, dir string) {
			os.Remove(dir + "/.git/config")
			os.Symlink(private+"/.git/config", dir+"/.git/config")
		},
		"a HEAD that waits": func(t *testing.T, dir string) {
			os.Remove(dir + "/.git/HEAD")
			if out, err := exec.Command("mkfifo", dir+"/.git/HEAD").CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
		},
		"a HEAD that leads out":     func(t *testing.T, dir string) { write(t, dir+"/.git/HEAD", "ref: refs/heads/../../../x\n") },
		"a HEAD that is an option":  func(t *testing.T, dir string) { write(t, dir+"/.git/HEAD", "ref: refs/heads/-x\n") },
		"an endless configuration":  func(t *testing.T, dir string) { os.Truncate(dir+"/.git/config", 1<<30) },
		"a configuration of no use": func(t *testing.T, dir string) { write(t, dir+"/.git/config", "[core\n") },
		"objects elsewhere": func(t *testing.T, dir string) {
			write(t, dir+"/.git/objects/info/alternates", private+"/.git/objects\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := made(t, "tree")
			find(t, dir)
			plant(t, dir)
			if r, err := Find(dir); err == nil {
				t.Errorf("it was read: %+v", r)
			}
		})
	}
}

// TestNothingRuns: no key of a configuration has a program run when it is read.
func TestNothingRuns(t *testing.T) {
	dir := made(t, "a")
	ran := dir + "/ran"
	program := dir + "/program"
	write(t, program, "#!/bin/sh\n: >"+ran+"\n")
	os.Chmod(program, 0o755)
	for _, key := range []string{"core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.hooksPath", "core.alternateRefsCommand",
		"diff.external", "filter.x.clean", "gpg.program", "credential.helper", "alias.config", "include.path"} {
		run(t, dir, "config", key, program)
	}
	if r := find(t, dir); r.Branch != "main" {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program ran")
	}
	exec.Command(program).Run()
	if _, err := os.Stat(ran); err != nil {
		t.Error("the program would not show that it ran")
	}
}
