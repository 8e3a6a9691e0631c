package leftovers

import (
	"os"
	"path/filepath"
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
		{".git/config", "[]\nx=y\n[", ""},
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
	if want := "d/up git out suid"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %v", got, want)
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
