package leftovers

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// cloned is a configuration as git clone, git remote and git push -u leave it.
const cloned = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
[remote "origin"]
	url = https://example.org/r.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
	remote = origin
	merge = refs/heads/main
[remote "fork"]
	url = git@example.org:me/r.git
	fetch = +refs/heads/*:refs/remotes/fork/*
[submodule "a"]
	active = true
	url = https://example.org/a.git
[user]
	name = A B
	email = a@example.org
[lfs]
	repositoryformatversion = 0
`

// TestListed: what could run on the host is listed with why; what could not, in
// files like them, is not.
func TestListed(t *testing.T) {
	for _, c := range []struct{ name, text, why string }{
		{".git/hooks/pre-commit", "x", "git runs it"},
		{"sub/.git/hooks/post-checkout", "x", "git runs it"},
		{".git/modules/m/hooks/pre-push", "x", "git runs it"},
		{".git/hooks/pre-commit.sample", "x", ""},
		{".git/refs/heads/main", "x", ""},
		{".git/config", "[core]\n\tbare = false\n", ""},
		{".git/config", "[core]\n\tfsmonitor = /tmp/x\n", "core.fsmonitor"},
		{".git/config", "[Core] HooksPath=x\n", "core.hookspath"},
		{".git/config", "[filter \"a\"]\n\tclean = x\n", "filter.clean"},
		{".git/config", "[remote \"o\"]\n\turl = https://example.org/x\n", ""},
		{".git/config", "[remote \"o\"]\n\turl = ext::sh -c x\n", "remote.url"},
		{".git/config.worktree", "[include]\n\tpath = /x\n", "include.path"},
		{".git/config", "[]\nx=y\n[", "unclear"},
		{".git/config", "[user]\n# x \\\n[core]\n\tfsmonitor = x\n", "core.fsmonitor"},
		{".git/config", "\ufeff[core]\n\tfsmonitor = x\n", "core.fsmonitor"},
		{".git/config", "[lfs \"customtransfer.x\"]\n\tpath = x\n", "lfs.path"},
		{".git/config", "[core]\n\tunheardOf = x\n", "core.unheardof"},
		{".git/config", cloned, ""},
		{".git/modules/m/config", "[core]\n\tworktree = ../../../m\n", "core.worktree"},
		{"config", "[core]\n\tfsmonitor = x\n", ""},
		{".gitmodules", "[submodule \"a\"]\n\tupdate = !x\n", "submodule.update"},
		{".gitmodules", "[submodule \"a\"]\n\tupdate = merge\n", ""},
		{".gitattributes", "*.c filter=x\n", "filter=x"},
		{".gitattributes", "*.c text\n", ""},
		{".envrc", "x", "direnv"},
		{"a/b/.envrc", "x", "direnv"},
		{".vscode/tasks.json", "{}", "editor"},
		{".vscode/extensions.json", "{}", ""},
		{".idea/runConfigurations/x.xml", "x", "editor"},
		{".devcontainer/devcontainer.json", "{}", "editor"},
		{".husky/pre-commit", "x", "husky"},
		{".pre-commit-config.yaml", "x", "pre-commit"},
		{"package.json", `{"scripts":{"postinstall":"x"}}`, "postinstall"},
		{"package.json", `{"scripts":{"test":"x"}}`, ""},
		{"package.json", `{`, "unreadable"},
		{".claude/settings.local.json", "{}", "Claude"},
		{".mcp.json", "{}", "servers"},
		{".claude/hooks/config", "[core]\n", "Claude"},
		{"mise.local.toml", "x", "mise"},
		{"a/.mise.dev.toml", "x", "mise"},
		{".config/mise/config.toml", "x", "mise"},
		{".config/mise/conf.d/a.toml", "x", "mise"},
		{"promise.toml", "x", ""},
		{"config/app.toml", "x", ""},
		{".opencode/plugins/a.ts", "x", "opencode"},
		{".opencode/agent/a.md", "x", ""},
		{"x.git/objects/sub/.git/config", "[core]\n\tfsmonitor = x\n", "core.fsmonitor"},
		{"x.git/objects/.envrc", "x", "direnv"},
		{".npmrc", "x", "npm"},
		{"bare/HEAD", "ref: x", "repository"},
		{"package.json", `{"scripts":{"postinstall":"x"},"Scripts":null}`, "postinstall"},
		{"package.json", `{"scripts":{"postinstall":"x","PostInstall":null}}`, "postinstall"},
		{"package.json", `{"scripts":{},"scripts":{"postinstall":"x"}}`, "postinstall"},
		{"package.json", `{"scripts":{"postinstall":"x"},"scripts":{}}`, ""}, // npm takes the last
		{"package.json", `{"Scripts":{"postinstall":"x"}}`, ""},
		{"package.json", `{"scripts":null}`, ""},
		{"package.json", `{"scripts":{"dependencies":"x"}}`, "dependencies"},
		{"a/binding.gyp", "{}", "node-gyp"},
		{".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = https://example.org/a\n\tshallow = true\n", ""},
		{".gitmodules", "[submodule \"a\"]\n# \\\n\tupdate = !x\n", "submodule"},
		{".git/info/attributes", "*.c filter=x\n", "filter=x"},
		{".git/info/attributes", "*.c text\n", ""},
		{".git/remotes/o", "URL: x", "git fetches"},
		{".git/branches/o", "x", "git fetches"},
		{".git/refs/remotes/o", "x", ""},
		{".git/objects/info/alternates", "x", "objects"},
		{"sub/.git/objects/info/alternates", "x", "objects"},
		{".git/objects/info/packs", "x", ""},
		{".git/rebase-merge/git-rebase-todo", "pick 1 x\nexec make\n", "exec"},
		{".git/worktrees/w/rebase-merge/git-rebase-todo", " x make\n", "exec"},
		{".git/rebase-merge/git-rebase-todo", "pick 1 exec\n", ""},
		{".hg/hgrc", "x", "hg"},
		{".hg/hgrc-not-shared", "x", "hg"},
		{".hg/store/hgrc.i", "x", ""},
		{".jj/repo/config.toml", "x", "jj"},
		{".githooks/pre-push", "x", "git runs it"},
		{"githooks/pre-push", "x", ""},
		{"lefthook.yml", "x", "lefthook"},
		{".lefthook.toml", "x", "lefthook"},
		{".config/lefthook-local.yaml", "x", "lefthook"},
		{".envrc.local", "x", "direnv"},
		{".yarnrc", "x", "yarn"},
		{".pnpmfile.cjs", "x", "pnpm"},
		{".cargo/config.toml", "x", "cargo"},
		{".cargo/config", "x", "cargo"},
		{"flake.nix", "x", "nix"},
		{"shell.nix", "x", "nix"},
		{"devenv.nix", "x", "nix"},
		{"default.nix", "x", ""},
		{"devbox.json", "{}", "devbox"},
		{".helix/languages.toml", "x", "editor"},
		{".helix/README", "x", ""},
		{".zed/debug.json", "{}", "editor"},
		{".run/x.run.xml", "x", "editor"},
		{".vim/coc-settings.json", "{}", "editor"},
		{".gemini/extensions/a/gemini-extension.json", "{}", "Gemini"},
		{".gemini/.env", "x", "Gemini"},
		{".gemini/GEMINI.md", "x", ""},
		{".qwen/settings.json", "{}", "servers"},
		{".roo/mcp.json", "{}", "servers"},
		{".kiro/settings/mcp.json", "{}", "servers"},
		{".amazonq/mcp.json", "{}", "servers"},
		{".junie/mcp/mcp.json", "{}", "servers"},
		{".github/mcp.json", "{}", "servers"},
		{".github/workflows/a.yml", "x", ""},
		{"crush.json", "{}", "servers"},
		{".crush.json", "{}", "servers"},
		{".aider.conf.yml", "x", "aider"},
		{".cursor/cli.json", "{}", "editor"},
		{".cursor/worktrees.json", "{}", "editor"},
		{".cursor/environment.json", "{}", "editor"},
		{".cursor/rules/a.mdc", "x", ""},
		{".codex/rules/default.rules", "x", "Codex"},
		{".gitconfig", "[core]\n\tpager = x\n", "core.pager"},
		{".gitconfig", "[user]\n\tname = x\n", ""},
		{".devcontainer.json", "{}", "editor"},
		{".nvim.lua", "x", "editor"},
		{".git/config", "[a]\n\t" + strings.Repeat("a", 300) + " = x\n[core]\n\tpager = x\n", "and others"},
		{"bin/head", "x", ""},
		{".EnvRC", "x", "direnv"}, // a file system may pass over case
		{"sub/.Git/Hooks/pre-push", "x", "git runs it"},
		{"Makefile", "x", ""},
		{"conftest.py", "x", ""},
		{"main.go", "x", ""},
	} {
		dir := t.TempDir()
		before := Scan(dir)
		write(t, dir, c.name, c.text, 0o600)
		after := Scan(dir)
		got := Changes(before, after)
		if c.why == "" && len(got) > 0 || c.why != "" && (len(got) != 1 || got[0].Path != c.name || !got[0].New || !strings.Contains(got[0].Why, c.why)) {
			t.Errorf("%s %q: %v, want %q", c.name, c.text, got, c.why)
		}
		if again := Changes(after, Scan(dir)); len(again) > 0 || after.Cut {
			t.Errorf("%s: not changed, and listed: %v", c.name, again)
		}
	}
}

// TestKinds: links that lead out, setuid programs and programs called as common
// ones; links within and programs of other names are not listed.
func TestKinds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "suid", "x", 0o755|os.ModeSetuid)
	write(t, dir, "prog", "x", 0o755)
	write(t, dir, "git", "x", 0o755)
	write(t, dir, "ls", "not executable", 0o644)
	write(t, dir, "d/git", "x", 0o755)
	for name, to := range map[string]string{"out": "/etc/passwd", "d/up": "../../x", "in": "d/git", "d/in": "../prog", "self": dir, "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, c := range Changes(State{}, Scan(dir)) {
		got = append(got, c.Path)
	}
	slices.Sort(got)
	if want := "d/up git out suid"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestLinkedDirectories: a link in the place of a directory whose files something runs
// is listed, though it leads to one within; one beside them is not.
func TestLinkedDirectories(t *testing.T) {
	for name, want := range map[string]bool{".git/hooks": true, ".git/modules": true, ".kiro": true, ".kiro/settings": true, "a/.vscode": true, ".kiro/other": false, "settings": false} {
		dir := t.TempDir()
		write(t, dir, "x/y", "x", 0o600)
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, "x"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if got := Changes(State{}, Scan(dir)); len(got) > 0 != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestBare: a repository without a .git, that was there before, has the same listed as
// others; a directory that is none has not.
func TestBare(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "r/HEAD", "ref: x", 0o600)
	before := Scan(dir)
	for _, d := range []string{"r", "n"} {
		write(t, dir, d+"/config", "[core]\n\tfsmonitor = x\n", 0o600)
		write(t, dir, d+"/commondir", "x", 0o600)
		write(t, dir, d+"/hooks/pre-push", "x", 0o700)
		write(t, dir, d+"/hooks/pre-push.sample", "x", 0o700)
	}
	var got []string
	for _, c := range Changes(before, Scan(dir)) {
		got = append(got, c.Path)
	}
	if strings.Join(got, " ") != "r/commondir r/hooks/pre-push r/config" {
		t.Errorf("%v", got)
	}
}

// TestOrder: what git runs comes first, then what runs by itself, whatever the names.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".0/.npmrc", ".0/.envrc", ".1/.npmrc", "HEAD"} {
		write(t, dir, name, "x", 0o600)
	}
	for name, to := range map[string]string{".0/out": "/", ".git": "/"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, c := range Changes(State{}, Scan(dir)) {
		got = append(got, c.Path)
	}
	if strings.Join(got, " ") != ".git HEAD .0/out .0/.envrc .0/.npmrc .1/.npmrc" {
		t.Errorf("%v", got)
	}
}

// TestTables: paths are in lower case when they are looked up, so the tables must be.
func TestTables(t *testing.T) {
	for _, table := range tables {
		all := slices.Concat(slices.Collect(maps.Keys(table.names)), slices.Collect(maps.Keys(table.begin)))
		for _, r := range table.dirs {
			all = append(append(all, r.name), r.files...)
		}
		for _, name := range all {
			if fold(name) != name {
				t.Errorf("%s is not in lower case", name)
			}
		}
	}
}

// TestChanged: what was there is listed only if the part that could run changed.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".git/config", "[alias]\n\ta = b\n", 0o600)
	write(t, dir, "package.json", `{"scripts":{"prepare":"x"}}`, 0o600)
	before := Scan(dir)
	write(t, dir, ".git/config", "[alias]\n\ta = b\n[user]\n\tname = x\n", 0o600)
	write(t, dir, "package.json", `{"version":"2","scripts":{"prepare":"x"}}`, 0o600)
	if got := Changes(before, Scan(dir)); len(got) > 0 {
		t.Errorf("nothing that runs changed: %v", got)
	}
	write(t, dir, "package.json", `{"scripts":{"prepare":"y"}}`, 0o600)
	if got := Changes(before, Scan(dir)); len(got) != 1 || got[0].New {
		t.Errorf("%v", got)
	}
	write(t, dir, ".git/config", "[url \"https://a/\"]\n\tinsteadOf = b\n", 0o600)
	// What a setting is of counts too, and which of two comes last.
	for _, now := range []string{"[url \"ext::x\"]\n\tinsteadOf = b\n", "[alias]\n\ta = b\n\ta = c\n", "[alias]\n\ta = c\n\ta = b\n"} {
		before := Scan(dir)
		write(t, dir, ".git/config", now, 0o600)
		if got := Changes(before, Scan(dir)); len(got) != 1 || got[0].Path != ".git/config" {
			t.Errorf("%q: %v", now, got)
		}
	}
}

// TestBounds: a scan ends after so many entries and so much time, and says so.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a", "b", "c", "d"} {
		write(t, dir, n, "", 0o600)
	}
	later := time.Now().Add(time.Hour)
	if !scan(dir, 3, later).Cut || !scan(dir, 100, time.Now().Add(-1)).Cut || !Scan(filepath.Join(dir, "absent")).Cut {
		t.Error("a bound was passed and not told")
	}
	// What is best known is found all the same.
	write(t, dir, ".git/hooks/pre-commit", "x", 0o700)
	write(t, dir, ".envrc", "x", 0o600)
	if _, ok := scan(dir, 1, later).Found[".envrc"]; !ok {
		t.Error(".envrc was not looked at")
	}
	if scan(dir, 100, later).Cut {
		t.Error("control: cut")
	}
}
