package live

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// cloner runs sandboxes of one user, in repositories of his.
type cloner struct {
	t   *testing.T
	env []string
}

func newCloner(t *testing.T) *cloner {
	env, state := homes(t)
	home := filepath.Dir(filepath.Dir(state))
	agents := filepath.Join(home, "config", "sb", "agents")
	os.MkdirAll(agents, 0o700)
	text := "image = [\"" + imageRef + "\"]\nuser = \"agent\"\ncommand = [\"/bin/sh\"]\n[instructions]\nfile = \"AGENTS.md\"\ntext = \"be careful\\n\"\n"
	for path, text := range map[string]string{agents + "/mine.toml": text, home + "/.gitconfig": "[user]\n\tname = \"U \\\"V\\\" ü\"\n\temail = u@example.org\n[alias]\n\tx = !true\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &cloner{t, env}
}

// run runs sb-run in a directory.
func (c *cloner) run(dir string, args ...string) *result {
	c.t.Helper()
	cmd := exec.Command(sbRun(), args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, c.env, &out, &errs
	timer := time.AfterFunc(runTime, func() { cmd.Process.Kill() })
	cmd.Run()
	timer.Stop()
	return &result{t: c.t, code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
}

func (c *cloner) sandbox(dir, script string, flags ...string) *result {
	c.t.Helper()
	args := append([]string{"mine", "--cpus=1", "--memory=512m"}, flags...)
	return c.run(dir, append(args, "--", "sh", "-c", script)...)
}

func (c *cloner) git(dir string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository makes one of the user's, with a commit.
func (c *cloner) repository(name string) string {
	c.t.Helper()
	dir := filepath.Join(workspace(c.t), name)
	os.MkdirAll(dir+"/sub", 0o755)
	c.git(dir, "init", "-q", "-b", "main")
	os.WriteFile(dir+"/file", []byte("host\n"), 0o644)
	os.WriteFile(dir+"/sub/file", []byte("sub\n"), 0o644)
	c.git(dir, "add", "-A")
	c.git(dir, "commit", "-qm", "one")
	c.git(dir, "remote", "add", "origin", "git@git.example.org:own/one.git")
	return dir
}

var keptName = regexp.MustCompile(`sb-run fetch (\S+) brings`)

// fetch brings the work of a run into the repository.
func (c *cloner) fetch(dir string, r *result) string {
	c.t.Helper()
	m := keptName.FindStringSubmatch(r.stderr)
	if m == nil {
		c.t.Fatalf("no work is kept; stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
	}
	got := c.run(dir, "fetch", m[1])
	if got.code != 0 {
		c.t.Fatalf("fetch: %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	return "sb/" + m[1]
}

// says checks what a run told the user.
func (r *result) told(pattern string) {
	r.t.Helper()
	if !regexp.MustCompile(pattern).MatchString(r.stderr) {
		r.t.Errorf("stderr does not match %q:\n%s", pattern, r.stderr)
	}
}

// TestClone: what is done to the clone stays in it, and comes out by fetch alone.
func TestClone(t *testing.T) {
	c := newCloner(t)
	dir := c.repository("tree")
	c.git(dir, "branch", "other")
	os.WriteFile(dir+"/not-committed", []byte("secret"), 0o644)
	os.WriteFile(dir+"/.git/hooks/x", []byte("user"), 0o644)
	before := c.git(dir, "rev-parse", "HEAD")
	r := c.sandbox(dir+"/sub", `
echo "== where"; pwd; id -u; git status --porcelain; git branch --format='%(refname:short)'; git remote get-url origin; git config user.name
echo "== edit"; cd ..; echo guest >file; cat file; ls
echo "== instructions"; cat AGENTS.md
git commit -qam two; echo three >new
echo "== seen"; ls -a /run/sb/source; cat /run/sb/source/config /run/sb/source/hooks/x 2>&1; sudo cat /run/sb/source/logs/HEAD 2>&1; grep -rc user /run/sb/source | grep -v ':0$'
echo "== read-only"; touch /run/sb/source/x 2>&1; sudo touch /run/sb/source/x 2>&1; sudo rm -rf /run/sb/source/objects 2>&1 | head -1
exit 3`, "--clone")
	t.Run("the agent sees its own edits", func(t *testing.T) {
		claim(t, "66", "clone")
		r.says(t, "where", `^`+dir+`/sub\n1000\nmain\nother\ngit@git.example.org:own/one.git\nU "V" ü$`)
		r.says(t, "edit", `^guest\nAGENTS.md\nfile\nsub$`)
		r.says(t, "read-only", `Read-only|Permission|not permitted`)
		if r.code != 3 {
			t.Errorf("exit code %d\n%s", r.code, r.stderr)
		}
	})
	t.Run("what makes a clone is seen, and nothing else", func(t *testing.T) {
		claim(t, "clone")
		r.says(t, "seen", `^\.\n\.\.\nHEAD\nobjects\nrefs\n(cat: .*No such file or directory\n?){3}$`)
	})
	t.Run("the host's file is untouched", func(t *testing.T) {
		claim(t, "67", "clone")
		text, _ := os.ReadFile(dir + "/file")
		if got := c.git(dir, "rev-parse", "HEAD"); string(text) != "host\n" || got != before {
			t.Errorf("%q %s, was %s", text, got, before)
		}
	})
	t.Run("instructions come into a clone, and the tree stays clean", func(t *testing.T) {
		claim(t, "130", "134", "135", "clone")
		r.says(t, "instructions", `^be careful$`)
		if got := c.git(dir, "status", "--porcelain"); got != "?? not-committed" {
			t.Errorf("the tree has %q", got)
		}
	})
	t.Run("fetch brings the work", func(t *testing.T) {
		claim(t, "clone")
		ref := c.fetch(dir, r)
		if got := c.git(dir, "show", ref+"/main:file"); got != "guest" {
			t.Errorf("file: %q", got)
		}
		if got := c.git(dir, "show", ref+"/sb-uncommitted:new"); got != "three" {
			t.Errorf("what was not committed: %q", got)
		}
		if got := c.git(dir, "log", "-1", "--format=%an <%ae>", ref+"/main"); got != `U "V" ü <u@example.org>` {
			t.Errorf("the author is %s", got)
		}
		c.git(dir, "fsck", "--strict")
	})
	t.Run("history survives", func(t *testing.T) {
		claim(t, "68", "clone")
		r := c.sandbox(dir, `echo "== rm"; rm -rf .git && ls -a`, "--clone")
		r.ok(t)
		r.says(t, "rm", `^\.\n\.\.\nAGENTS.md\nfile\nsub$`)
		if got := c.git(dir, "rev-parse", "HEAD"); got != before {
			t.Errorf("HEAD is %s, was %s", got, before)
		}
		r.told(`the work in the clone is not kept`)
	})
}

// TestCloneKinds: worktrees, submodules, LFS's pointers, a repository without a commit,
// and one that has its own instructions.
func TestCloneKinds(t *testing.T) {
	c := newCloner(t)
	dir := c.repository("tree")
	in := c.repository("in")
	c.git(dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", in, "mod")
	os.WriteFile(dir+"/AGENTS.md", []byte("mine\n"), 0o644)
	os.WriteFile(dir+"/.gitattributes", []byte("*.bin filter=lfs\n"), 0o644)
	c.git(dir, "add", "-A")
	c.git(dir, "-c", "filter.lfs.clean=cat", "commit", "-qm", "two")
	t.Run("submodule, LFS, own instructions", func(t *testing.T) {
		claim(t, "136", "clone")
		r := c.sandbox(dir, `echo "== mod"; cat mod/file; git submodule status; git status --porcelain; git -C mod remote get-url origin; echo "== own"; cat AGENTS.md`, "--clone")
		r.ok(t)
		r.says(t, "mod", `^host\n [0-9a-f]{40} mod \(.*\)\n`+in+`$`)
		r.says(t, "own", `^mine$`)
		r.told(`has its own AGENTS.md`)
		r.told(`git-lfs are pointers`)
		r.told(`nothing of it is kept`)
	})
	t.Run("in a submodule", func(t *testing.T) {
		claim(t, "clone")
		r := c.sandbox(dir+"/mod", `echo "== where"; pwd; cat file; git log --format=%s`, "--clone")
		r.ok(t)
		r.says(t, "where", `^`+dir+`/mod\nhost\none$`)
	})
	t.Run("no branch", func(t *testing.T) {
		claim(t, "clone")
		c.git(dir, "checkout", "-q", "--detach", "HEAD^")
		defer c.git(dir, "checkout", "-q", "main")
		r := c.sandbox(dir, `echo "== at"; git rev-parse HEAD; git branch --show-current; echo x >y; git add y; git commit -qm y`, "--clone")
		r.ok(t)
		r.says(t, "at", `^`+c.git(dir, "rev-parse", "HEAD")+`$`)
		if got := c.git(dir, "show", c.fetch(dir, r)+"/sb-detached:y"); got != "x" {
			t.Errorf("y: %q", got)
		}
	})
	t.Run("a worktree", func(t *testing.T) {
		claim(t, "clone", "F15")
		tree := filepath.Join(filepath.Dir(dir), "linked")
		c.git(dir, "worktree", "add", "-q", "-b", "topic", tree)
		r := c.sandbox(tree, `echo "== where"; pwd; git branch --show-current; test -d .git && echo own; echo x >y; git add y; git commit -qm y`, "--clone")
		r.ok(t)
		r.says(t, "where", `^`+tree+`\ntopic\nown$`)
		if got := c.git(tree, "show", c.fetch(tree, r)+"/topic:y"); got != "x" {
			t.Errorf("y: %q", got)
		}
	})
	t.Run("no commit", func(t *testing.T) {
		claim(t, "clone")
		empty := filepath.Join(workspace(t), "empty")
		os.MkdirAll(empty, 0o755)
		c.git(empty, "init", "-q", "-b", "main")
		os.WriteFile(empty+"/draft", []byte("draft\n"), 0o644)
		r := c.sandbox(empty, `echo "== copied"; cat draft; echo more >>draft; git add draft; git commit -qm first`, "--clone")
		r.ok(t)
		r.says(t, "copied", `^draft$`)
		r.told(`no commit to clone`)
		if text, _ := os.ReadFile(empty + "/draft"); string(text) != "draft\n" {
			t.Errorf("draft: %q", text)
		}
		if got := c.git(empty, "show", c.fetch(empty, r)+"/main:draft"); got != "draft\nmore" {
			t.Errorf("draft: %q", got)
		}
	})
	t.Run("a live tree", func(t *testing.T) {
		claim(t, "131", "132", "133", "git", "clone")
		live := c.repository("live")
		r := c.sandbox(live, `echo "== home"; ls; git config user.name; git config user.email; git config alias.x; git status --porcelain; sudo git log --format=%s`)
		r.ok(t)
		r.says(t, "home", `^file\nsub\nU "V" ü\nu@example.org\none$`)
		r.told(`AGENTS.md\) are not written into a tree of yours: --clone`)
		if got := c.git(live, "status", "--porcelain"); got != "" {
			t.Errorf("the tree has %q", got)
		}
	})
}
