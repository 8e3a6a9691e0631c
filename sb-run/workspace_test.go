package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/sb-run/leftovers"
	"sb/sb-run/undo"
)

// TestParseMount: the guest's path is what is behind the last ":/".
func TestParseMount(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", filepath.Join(top, "home"))
	for _, name := range []string{"plain", "a:b", "a:", "c:/d", "e:ro"} {
		if err := os.MkdirAll(filepath.Join(top, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]manifest.Share{
		"plain:/x":      {Host: "plain", Guest: "/x"},
		"plain:/x:rw":   {Host: "plain", Guest: "/x"},
		"plain:/x/:ro":  {Host: "plain", Guest: "/x", ReadOnly: true},
		"plain:/x:copy": {Host: "plain", Guest: "/x", Copy: true},
		"a:b:/x":        {Host: "a:b", Guest: "/x"},
		"a::/x:ro":      {Host: "a:", Guest: "/x", ReadOnly: true},
		"c:/d:/x:copy":  {Host: "c:/d", Guest: "/x", Copy: true},
		"e:ro:/x":       {Host: "e:ro", Guest: "/x"},
	} {
		want.Host = filepath.Join(top, want.Host)
		got, err := parseMount(top+"/"+text, false)
		if err != nil || got.Host != want.Host || got.Guest != want.Guest || got.ReadOnly != want.ReadOnly || got.Copy != want.Copy {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"plain", "plain:", "plain:/x:Copy", "plain:/x:copy,ro", "plain:x:ro", ":/x", "none:/x"} {
		if got, err := parseMount(top+"/"+text, false); err == nil && text != ":/x" {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestShareHome: the home directory is shared only on request; then our own
// directories and the known keys do not exist in it, by any of their names, and
// what runs by itself is protected.
func TestShareHome(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SB_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", home)
	for _, d := range []string{"dotfiles/aws", ".ssh", "work"} {
		os.MkdirAll(filepath.Join(home, d), 0o700)
	}
	os.WriteFile(filepath.Join(home, "dotfiles", "bashrc"), nil, 0o600)
	os.Symlink("dotfiles/aws", filepath.Join(home, ".aws"))
	os.Symlink("dotfiles/bashrc", filepath.Join(home, ".bashrc"))
	s := manifest.Share{Host: home}
	if err := setHost(&s, false); err == nil || !strings.Contains(withHint(err), "--share-home") {
		t.Errorf("unasked: %v", err)
	}
	s = manifest.Share{Host: home}
	if err := setHost(&s, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/.ssh/id_*", "/.netrc", "/.aws", "/dotfiles/aws", "/.local/state/sb", "/.config/sb", "/.local/share/sb",
		// the sign-ins of each built-in agent
		"/.claude/.credentials.json", "/.codex/auth.json", "/.codex/.credentials.json", "/.gemini/oauth_creds.json", "/.gemini/mcp-oauth-tokens.json", "/.copilot/config.json", "/.local/share/opencode/auth.json", "/.local/share/opencode/mcp-auth.json", "/.pi/agent/auth.json", "/.pi/agent/models.json"} {
		if !slices.Contains(s.Hidden, want) {
			t.Errorf("%s is not hidden: %q", want, s.Hidden)
		}
	}
	for _, want := range []string{"/.ssh", "/.bashrc", "/dotfiles/bashrc", "/.config/autostart", "/.oh-my-zsh", "/.config/opencode/plugins", "/.pi/agent/extensions", "/.claude/plugins"} {
		if !slices.Contains(s.Protected, want) {
			t.Errorf("%s is not protected: %q", want, s.Protected)
		}
	}
	for _, p := range append(s.Hidden, s.Protected...) {
		if err := manifest.CheckPattern(p); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{"/", filepath.Dir(home), filepath.Join(home, ".local/state/sb")} {
		s := manifest.Share{Host: dir}
		if err := setHost(&s, true); err == nil {
			t.Errorf("%s is shared", dir)
		}
	}
	s = manifest.Share{Host: filepath.Join(home, "work")}
	if err := setHost(&s, true); err != nil || len(s.Hidden) != 0 {
		t.Errorf("a directory in it: %+v, %v", s, err)
	}
}

// TestGuardedPaths: each has its reason and can be told to the share server.
func TestGuardedPaths(t *testing.T) {
	dir := t.TempDir()
	for _, g := range guardedPaths {
		if err := manifest.CheckPattern(g.path); err != nil || g.why == "" {
			t.Errorf("%+v: %v", g, err)
		}
	}
	s := manifest.Share{Host: dir}
	guardWorkspace(&s, profile.Workspace{Protect: []string{"mine"}, Hide: []string{".env*"}, Private: []string{"auto", "own"}})
	if !slices.Contains(s.Protected, "mine") || !slices.Contains(s.Protected, ".envrc") || !slices.Contains(s.Shadowed, "/.git/config") || slices.Contains(s.Protected, "/.git") {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(s.Hidden, []string{".env*"}) || !slices.Equal(s.Private, []string{"own"}) {
		t.Errorf("%+v", s)
	}
	os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: /elsewhere\n"), 0o600)
	os.WriteFile(filepath.Join(dir, "Cargo.lock"), nil, 0o600)
	s = manifest.Share{Host: dir}
	guardWorkspace(&s, profile.Workspace{Private: []string{"auto"}})
	if !slices.Contains(s.Protected, "/.git") || !slices.Equal(s.Private, []string{"target"}) {
		t.Errorf("%+v", s)
	}
	s = manifest.Share{Host: dir}
	guardWorkspace(&s, profile.Workspace{NoProtect: true, Protect: []string{"mine"}})
	if !slices.Equal(s.Protected, []string{"mine"}) || len(s.Shadowed) != 0 {
		t.Errorf("without protection: %+v", s)
	}
}

// TestGuardedAreListed: what is protected is also listed at the end of a run, for where
// it is not: with --no-protect, on macOS, and in what lies elsewhere.
func TestGuardedAreListed(t *testing.T) {
	for _, g := range guardedPaths {
		if strings.HasSuffix(g.path, ".lock") || g.path == acceptMade || g.path == undo.Made {
			continue // git runs nothing by it until it is renamed, nor does anybody
		}
		listed := false
		for _, below := range []string{"", "/config.toml"} { // a file, or a directory with one
			dir := t.TempDir()
			path := filepath.Join(dir, strings.ReplaceAll(g.path, "*", "x")+below)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("[core]\nfsmonitor = x\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			listed = listed || len(leftovers.Scan(dir).Found) > 0
		}
		if !listed {
			t.Errorf("%s is not", g.path)
		}
	}
}

// TestTwoInOneWorkspace: that is allowed, and said to the second.
func TestTwoInOneWorkspace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.start(s.cmd("img", "-w", s.work, "--", "sh", "-c", untilFile))
	r.untilUp()
	const note = "another sandbox works in "
	s.run("img", "-w", s.work, "--", "true").want(t, 0, note+s.work)
	s.run("img", "-v", s.work+":/x:ro", "--", "true").want(t, 0, "!"+note)
	s.goOn()
	r.wait().want(t, 7, "!"+note)
	s.run("img", "-w", s.work, "--", "true").want(t, 0, "!"+note)
}

// TestWorkspaceFlags: what is chosen by flags and by the configuration adds up, and
// is refused where there is no workspace.
func TestWorkspaceFlags(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.config("[workspace]\nprotect = [\"a\"]\nhide = [\"b\"]\nprivate = [\"c\"]\n")
	share := s.printed("img", "-w", s.work, "--protect", "d", "--hide", "e", "--private", "f").Shares[0]
	for _, want := range []string{"a", "d"} {
		if !slices.Contains(share.Protected, want) {
			t.Errorf("%s is not protected: %+v", want, share)
		}
	}
	if !slices.Equal(share.Hidden, []string{"e", "b"}) || !slices.Equal(share.Private, []string{"c", "f"}) {
		t.Errorf("%+v", share)
	}
	for _, flag := range []string{"--protect=x", "--no-protect", "--hide=x", "--private=x"} {
		s.run("img", flag, "--print").want(t, 125, "are about a workspace")
	}
	for _, flag := range []string{"--protect=../x", "--hide=a//b", "--private=/x", "--private=..", "--private=a/../b", "--protect=["} {
		s.run("img", "-w", s.work, flag, "--print").want(t, 125, flag[:strings.Index(flag, "=")]+": ")
	}
	s.config("[workspace]\nprotect = [\"../a\"]\n")
	s.run("img", "--print").want(t, 125, "config.toml: workspace: ")
}

// TestGuardMount: by a mount the guest can change nothing that it cannot change in the
// workspace, wherever the one lies in the other; elsewhere it is guarded as a workspace
// is, and what is hidden there is seen.
func TestGuardMount(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, dir := range []string{"sub", ".git", "gen"} {
		if err := os.MkdirAll(filepath.Join(s.work, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(s.home, "other")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	mounted := func(host string, flags ...string) (share manifest.Share) {
		t.Helper()
		m := s.printed(append([]string{"img", "-w", s.work, "--protect", "/sub/kept", "--protect", "gen", "--hide", "/sub/unseen", "-v", host + ":/m"}, flags...)...)
		for _, sh := range m.Shares {
			if sh.Guest == "/m" {
				share = sh
			}
		}
		return share
	}
	sub := mounted(filepath.Join(s.work, "sub"))
	if sub.ReadOnly || !slices.Contains(sub.Protected, "/kept") || !slices.Contains(sub.Protected, ".envrc") || !slices.Contains(sub.Hidden, "/unseen") {
		t.Errorf("below: %+v", sub)
	}
	if git := mounted(filepath.Join(s.work, ".git")); !slices.Contains(git.Protected, "/config") || !slices.Contains(git.Protected, "/hooks") {
		t.Errorf("the git directory: %+v", git)
	}
	if same := mounted(s.work); slices.Contains(same.Protected, "/.git/config") || !slices.Contains(same.Shadowed, "/.git/config") || !slices.Contains(same.Protected, "/sub/kept") {
		t.Errorf("the same: %+v", same)
	}
	if gen := mounted(filepath.Join(s.work, "gen")); !gen.ReadOnly {
		t.Errorf("what is protected whole: %+v", gen)
	}
	if unseen := mounted(filepath.Join(s.work, "gen"), "--hide", "gen"); !slices.Contains(unseen.Hidden, "*") {
		t.Errorf("what is hidden whole: %+v", unseen)
	}
	o := mounted(other)
	if o.ReadOnly || slices.Contains(o.Protected, "gen") || len(o.Hidden) > 0 || !slices.Contains(o.Protected, ".envrc") || !slices.Contains(o.Shadowed, "/.git/hooks") {
		t.Errorf("elsewhere: %+v", o)
	}
	if free := mounted(other, "--no-protect"); len(free.Protected)+len(free.Shadowed) > 0 {
		t.Errorf("with --no-protect: %+v", free)
	}
	if ro := s.printed("img", "-v", other+":/m:ro").Shares; len(ro) != 1 || len(ro[0].Protected) > 0 {
		t.Errorf("read-only: %+v", ro)
	}
}

// TestGitElsewhere: in a workspace without its repository git does not work, which is
// said, and what to do.
func TestGitElsewhere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	at := func(path string) string { return filepath.Join(s.work, path) }
	for _, dir := range []string{"whole/.git/worktrees/linked", "whole/.git/modules/sub", "whole/part", "whole/sub", "linked", "none"} {
		if err := os.MkdirAll(at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{"linked/.git": "gitdir: " + at("whole/.git/worktrees/linked") + "\n", "whole/sub/.git": "gitdir: ../.git/modules/sub\n"} {
		if err := os.WriteFile(at(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const note = "git does not work inside: the repository is "
	for _, c := range []struct{ flags, want string }{
		{"-w=" + at("linked"), note + "elsewhere (" + at("whole/.git/worktrees/linked") + "): --clone"},
		{"-w=" + at("linked") + " -v=" + at("whole") + ":" + at("whole"), ""},
		{"-w=" + at("linked") + " -v=" + at("whole") + ":/x", note},
		{"-w=" + at("whole/sub"), note + "elsewhere"},
		{"-w=" + at("whole/part"), note + "that of " + at("whole") + ", of which this is a part: -w " + at("whole") + " --workdir " + at("whole/part")},
		{"-w=" + at("whole"), ""},
		{"-w=" + at("none"), ""},
	} {
		got := s.run(append(append([]string{"img"}, strings.Fields(c.flags)...), "--", "true")...)
		if got.want(t, 0); c.want == "" && strings.Contains(got.stderr, note) || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: %s", c.flags, got.stderr)
		}
	}
}
