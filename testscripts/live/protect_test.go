package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a workspace with a repository of the host's in it.
func repository(t *testing.T) string {
	t.Helper()
	dir := workspace(t)
	onHost(t, dir, `git init -q -b main .; git config user.name a; git config user.email a@b; git add -A; git commit -qm one
printf '#!/bin/sh\nexit 0\n' >.git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit; echo 'export A=1' >.envrc`)
	return dir
}

func onHost(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

const guestGit = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'\n"

// TestProtectedWorkspace: what programs of the host run by themselves stays as it
// is, whatever root in the guest does; everyday work goes on; and with --no-protect
// the same attempts succeed.
func TestProtectedWorkspace(t *testing.T) {
	t.Parallel()
	claim(t, "protect")
	const control = `
echo "== control"; set -e
echo x >Makefile; echo '{}' >package.json; mkdir src; echo x >src/a; mv src/a src/b; mv src lib; rm lib/b; rmdir lib; echo x >.vscode/extensions.json; cat .envrc
echo "== end"`
	const attempts = `
try() { "$@" 2>/dev/null && echo "WROTE: $*"; }
echo "== attempts"
try sh -c 'echo evil >.envrc'; try mv .envrc moved; try rm -f .envrc; try ln -sf /bin/true .envrc; try sh -c 'mkdir sub && echo evil >sub/.envrc'
try mkdir -p .vscode .claude; try sh -c 'echo evil >.vscode/tasks.json'; try sh -c 'echo evil >.mcp.json'; try sh -c 'echo evil >.claude/settings.json'; try mkdir .idea
try mv .git x; try sh -c 'mv .git x && mkdir .git'; try rm -rf .git/hooks; try mv .git/hooks .git/h; try ln -s /tmp .git/commondir; try sh -c 'echo ../evil >.git/commondir'
try ln .envrc linked; try mv .vscode vs; try chmod 777 .envrc; mkdir -p d; try mv -T d .vscode; try sh -c 'cp .envrc d/tasks.json; mv d d2; mv -T d2 .zed'
`
	dir := repository(t)
	before := onHost(t, dir, "cat .envrc .git/config; ls -la .git/hooks")
	r := run(t, box{flags: []string{"-w", dir}, script: attempts + control})
	r.ok(t)
	r.says(t, "control", `^export A=1$`)
	for l := range strings.Lines(r.section("attempts")) {
		if l = strings.TrimSpace(l); l != "WROTE: mkdir -p .vscode .claude" {
			t.Errorf("the guest did: %s", l)
		}
	}
	if after := onHost(t, dir, "cat .envrc .git/config; ls -la .git/hooks"); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	for _, f := range []string{".vscode/tasks.json", ".mcp.json", ".claude/settings.json", ".idea", ".git/commondir", "sub/.envrc"} {
		if _, err := os.Lstat(filepath.Join(dir, f)); err == nil {
			t.Errorf("the host has %s", f)
		}
	}
	r = run(t, box{flags: []string{"-w", repository(t), "--no-protect"}, script: attempts + "echo == end"})
	if got := strings.Count(r.section("attempts"), "WROTE"); got < 8 {
		t.Errorf("without protection %d attempts succeed:\n%s", got, r.section("attempts"))
	}
	if !strings.Contains(r.stderr, "is protected") {
		t.Errorf("it is not said: %s", r.stderr)
	}
}

// TestWorkspaceAsRepository: the guest makes the workspace itself a repository, in whose
// configuration git of the host would believe, and changes hooks that the host has
// elsewhere in the tree, behind a link and by core.hooksPath.
func TestWorkspaceAsRepository(t *testing.T) {
	t.Parallel()
	claim(t, "protect")
	const attempts = `
printf '#!/bin/sh\ntouch "$PWD/ran"\n' >.x; chmod +x .x
for f in githooks/pre-commit conf/settings.json myhooks/pre-commit; do printf '#!/bin/sh\ntouch "$PWD/ran-hook"\n' >$f && echo "WROTE: $f"; done 2>/dev/null
mv .git/HEAD . 2>/dev/null && mv .git/index .git/objects .git/refs . && printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = ./.x\n' >config && echo "WROTE: HEAD"
echo "== control"; echo x >conf/other && git log --format=%s -1; echo "== end"`
	made := func(hooks string) string {
		dir := repository(t)
		onHost(t, dir, `mkdir conf myhooks; ln -s conf .claude; mv .git/hooks githooks; ln -s ../githooks .git/hooks; echo exit 0 >myhooks/pre-commit; chmod +x myhooks/pre-commit
`+hooks)
		return dir
	}
	for _, hooks := range []string{"true", "git config core.hooksPath myhooks"} {
		dir := made(hooks)
		r := run(t, box{flags: []string{"-w", dir}, script: guestGit + attempts})
		r.ok(t)
		r.says(t, "control", `^one$`)
		want := "WROTE: myhooks/pre-commit\n" // nobody's, unless the configuration says so
		if hooks != "true" {
			want = ""
		}
		if got := wrote(r.stdout); got != want {
			t.Errorf("%s: the guest did %q", hooks, got)
		}
		if got := onHost(t, dir, "git status >/dev/null; git -c user.name=a -c user.email=a@a commit -q --allow-empty -m two; ls ran* 2>/dev/null || true"); got != "" {
			t.Errorf("%s: on the host: %s", hooks, got)
		}
	}
	dir := made("true")
	r := run(t, box{flags: []string{"-w", dir, "--no-protect"}, script: attempts})
	if got := wrote(r.stdout); strings.Count(got, "\n") != 4 {
		t.Errorf("without protection the guest did %q", got)
	}
	if got := onHost(t, dir, "git status >/dev/null 2>&1; ls ran || true"); got != "ran\n" {
		t.Errorf("without protection, on the host: %q", got)
	}
}

// wrote are the lines of what a guest did.
func wrote(out string) (all string) {
	for l := range strings.Lines(out) {
		if strings.HasPrefix(l, "WROTE: ") {
			all += l
		}
	}
	return all
}

// TestShadowedGit: everyday git works on a repository of the host's; what it writes
// to the configuration and to hooks is the guest's, until the user accepts it.
func TestShadowedGit(t *testing.T) {
	t.Parallel()
	claim(t, "accept")
	dir := repository(t)
	state := t.TempDir()
	os.Chmod(state, 0o700)
	env := []string{"XDG_STATE_HOME=" + state}
	before := onHost(t, dir, "cat .git/config .git/hooks/pre-commit")
	r := run(t, box{flags: []string{"-w", dir}, env: env, script: guestGit + `set -e
git checkout -q -b topic --track main; git remote add origin https://example.org/r.git; git config core.fsmonitor "touch $PWD/ran"
printf '#!/bin/sh\nexit 3\n' >.git/hooks/pre-commit
echo "== own"; git config core.fsmonitor; git config branch.topic.merge; tail -1 .git/hooks/pre-commit
git -c core.fsmonitor= commit --no-verify --allow-empty -qm two
echo "== end"`})
	r.ok(t)
	r.says(t, "own", `^touch .*/ran\nrefs/heads/main\nexit 3$`)
	if !strings.Contains(r.stderr, "the sandbox wrote .git/config, .git/hooks/pre-commit: sb-run accept") {
		t.Errorf("it is not said: %s", r.stderr)
	}
	if after := onHost(t, dir, "git status >/dev/null; cat .git/config .git/hooks/pre-commit"); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	if got := onHost(t, dir, "git log --format=%s topic; ls"); got != "two\none\nfrom-host\n" {
		t.Errorf("on the host: %s", got)
	}
	t.Run("the next one goes on with it", func(t *testing.T) {
		r := run(t, box{flags: []string{"-w", dir}, env: env, script: guestGit + `echo "== own"; git config remote.origin.url; tail -1 .git/hooks/pre-commit; ls .git/hooks | wc -l; echo "== end"`})
		r.ok(t)
		r.says(t, "own", `^https://example.org/r.git\nexit 3\n[1-9][0-9]+$`)
	})
	env = append(env, "XDG_DATA_HOME="+os.Getenv(dataVar), "XDG_CONFIG_HOME="+state, "SB_HOME=", "HOME="+state)
	t.Run("it is shown", func(t *testing.T) {
		out := onHost(t, dir, sbRun()+" accept --show", env...)
		for _, want := range []string{"+! \tfsmonitor = touch ", "+  \turl = https://example.org/r.git\n", "+! exit 3\n", "-  exit 0\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if out := onHost(t, dir, sbRun()+" accept --no-input 2>&1 || echo code $?; cat .git/config .git/hooks/pre-commit", env...); !strings.HasSuffix(out, "code 125\n"+before) {
			t.Errorf("unasked: %s", out)
		}
	})
	t.Run("and taken", func(t *testing.T) {
		out := onHost(t, dir, sbRun()+" accept --yes >/dev/null; git config core.fsmonitor; git config --unset core.fsmonitor; tail -1 .git/hooks/pre-commit; test -x .git/hooks/pre-commit; "+sbRun()+" accept --show 2>&1", env...)
		if !strings.HasPrefix(out, "touch ") || !strings.Contains(out, "ran\nexit 3\n") || !strings.Contains(out, "no sandbox has written anything") {
			t.Errorf("%s", out)
		}
	})
}
