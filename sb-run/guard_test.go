package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/profile"
)

// laid makes a tree: a name that ends with a slash is a directory, "a -> b" a link.
func laid(t *testing.T, files ...string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, target, isLink := strings.Cut(f, " -> ")
		name, text, _ := strings.Cut(name, ": ")
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o700)
		default:
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// guardedIn are the patterns that are protected in a tree and not in any.
func guardedIn(dir string) (own []string) {
	s := manifest.Share{Host: dir}
	guardWorkspace(&s, profile.Workspace{})
	return slices.DeleteFunc(s.Protected, func(p string) bool {
		return slices.ContainsFunc(guardedPaths, func(g guarded) bool { return g.path == p && !g.own })
	})
}

// TestGuardedByLinks: what a guarded path leads to in the workspace is guarded under its
// own name too, if the host has links on the way.
func TestGuardedByLinks(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"none", []string{".git/config", ".git/hooks/pre-commit", "link -> src", "src/a"}, nil},
		{"the repository", []string{".git -> store", "store/hooks/"}, []string{"/.git", "/store/config", "/store/hooks", "/store/modules/*/config"}},
		{"the hooks", []string{".git/hooks -> ../githooks", "githooks/pre-commit"}, []string{"/.git/hooks", "/githooks"}},
		{"a hook of those", []string{".git/hooks -> ../githooks", "githooks/commit-msg -> ../scripts/m", "scripts/m"}, []string{"/githooks", "/scripts/m"}},
		{"a hook", []string{".git/hooks/pre-push -> ../../scripts/m", "scripts/m"}, []string{"/.git/hooks/pre-push", "/scripts/m"}},
		{"not there yet", []string{".claude -> conf", "conf/"}, []string{"/.claude", "/conf/settings.json", "/conf/settings.local.json", "/conf/hooks"}},
		{"a link to nothing", []string{".mcp.json -> conf/mcp.json", "conf/"}, []string{"/conf/mcp.json"}},
		{"link to a link", []string{".envrc -> one", "one -> dir/two", "dir/two"}, []string{"/one", "/dir/two"}},
		{"a submodule's hooks", []string{".git/modules/lib/hooks -> ../../../libhooks", "libhooks/x"}, []string{"/libhooks"}},
		{"a name with globs", []string{".envrc -> a*b", "a*b"}, []string{`/a\*b`}},
	} {
		got := guardedIn(laid(t, c.files...))
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %s is not protected: %q", c.name, want, got)
			}
		}
		if c.want == nil && len(got) > 0 {
			t.Errorf("%s: protected are %q", c.name, got)
		}
		for _, p := range got {
			if err := manifest.CheckPattern(p); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	if got := guardedIn(laid(t, ".idea -> "+t.TempDir())); len(got) != 0 {
		t.Errorf("a link that leads out: %q", got)
	}
}

// TestGuardedByConfiguration: what git's configuration has it go by or run in the
// workspace is guarded.
func TestGuardedByConfiguration(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIP: git is not installed")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	config := func(text string) string { return ".git/config: " + text }
	for _, c := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"nothing", []string{config("[core]\n\tbare = false\n[user]\n\tname = tools/x\n[alias]\n\tt = !cd src/app && make\n"), "src/app/", "tools/x"}, nil},
		{"hooks", []string{config("[core]\n\thooksPath = .githooks\n")}, []string{"/.githooks"}},
		{"hooks of husky", []string{config("[core]\n\thooksPath = .husky/_\n")}, nil},
		{"include", []string{config("[include]\n\tpath = ../.gitconfig\n"), ".gitconfig: [core]\n\tfsmonitor = ./bin/watch\n", "bin/watch"}, []string{"/.gitconfig", "/bin/watch"}},
		{"include if", []string{config("[includeIf \"gitdir:/\"]\n\tpath = ../conf/git\n")}, []string{"/conf/git"}},
		{"a filter", []string{config("[filter \"x\"]\n\tclean = sh ./tools/clean.sh --for src/app\n"), "tools/clean.sh", "src/app/"}, []string{"/tools/clean.sh"}},
		{"what leads out", []string{config("[core]\n\thooksPath = ../elsewhere\n\tattributesFile = /etc/x\n")}, nil},
		{"a link from there", []string{config("[core]\n\thooksPath = .githooks\n"), ".githooks/pre-push -> ../scripts/p", "scripts/p"}, []string{"/.githooks", "/.githooks/pre-push", "/scripts/p"}},
		{"what git cannot read", []string{config("[core\n")}, nil},
		{"a worktree's", []string{config(""), ".git/config.worktree: [core]\n\thooksPath = h\n"}, []string{"/h"}},
	} {
		slices.Sort(c.want)
		if got := guardedIn(laid(t, c.files...)); !slices.Equal(got, c.want) {
			t.Errorf("%s: protected are %q, want %q", c.name, got, c.want)
		}
	}
	os.WriteFile(filepath.Join(os.Getenv("HOME"), ".gitconfig"), []byte("[core]\n\thooksPath = .hooks\n"), 0o600)
	if got := guardedIn(laid(t, "a")); !slices.Equal(got, []string{"/.hooks"}) {
		t.Errorf("by the user's own: %q", got)
	}
}

// TestBareWorkspace: what is a repository itself has its configuration in it.
func TestBareWorkspace(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	got := guardedIn(laid(t, "HEAD: ref: refs/heads/main\n", "objects/", "refs/", "config: [core]\n\thooksPath = mine/hooks\n"))
	for _, want := range []string{"/config", "/hooks", "/mine/hooks"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not protected: %q", want, got)
		}
	}
	if got := guardedIn(laid(t, "objects/", "refs/", "config")); len(got) != 0 {
		t.Errorf("of one that is none: %q", got)
	}
}
