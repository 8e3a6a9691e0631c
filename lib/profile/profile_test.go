package profile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/rule"
)

// TestBuiltIn: each is read, says what it is for, and names a host of a registry
// only under a wildcard of its domain.
func TestBuiltIn(t *testing.T) {
	names, err := Open(t.TempDir()).Names()
	if err != nil || strings.Join(names, " ") != "claude codex copilot gemini opencode pi shell" {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		p, err := Open(t.TempDir()).Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.About == "" || p.From != "" || len(p.Command) == 0 {
			t.Errorf("%+v", p)
		}
		if name == "shell" {
			continue
		}
		if p.User != "agent" || len(p.TrySecrets) == 0 {
			t.Errorf("%+v", p)
		}
		set, err := rule.Load(rule.Source{Origin: name, Allow: p.Rules.Allow})
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]bool{"a.npmjs.org": true, "files.pythonhosted.org": true, "github.com": true, "example.org": false} {
			n, err := rule.ParseName(host)
			if err != nil {
				t.Fatal(err)
			}
			if got := set.Dial(n, rule.TCP, 443).Allow; got != want {
				t.Errorf("%s: %s is allowed: %v", name, host, got)
			}
		}
	}
}

// TestOwn: one of the user's takes a built-in one's place, and another is found
// beside them; a file that is no profile names what is wrong with it.
func TestOwn(t *testing.T) {
	config := t.TempDir()
	s := Open(config)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(s.File(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.File(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Find("mine"); !errors.Is(err, ErrUnknown) {
		t.Errorf("none: %v", err)
	}
	write("mine", "image = [\"debian\"]\n")
	write("shell", "image = [\"other\"]\n")
	for _, name := range []string{"mine", "shell"} {
		if p, err := s.Find(name); err != nil || p.From != s.File(name) || p.Name != name {
			t.Errorf("%+v, %v", p, err)
		}
	}
	for _, name := range []string{"", "../shell", "UP", "a b", "-x", strings.Repeat("x", 80)} {
		if _, err := s.Find(name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for text, want := range map[string]string{
		"":                                   "image: it names no image",
		"image = [\"\"]\n":                   "image: it names no image",
		"image = [\"a\"]\nuser = \"root\"\n": "user: root is not unprivileged",
		"image = [\"a\"]\nuser = \"A B\"\n":  "user: \"A B\" is no name of a user",
		"image = [\"a\"]\ninstall = [\" \\n\"]\n":       "install: step 1 is empty",
		"image = [\"a\"]\nnope = 1\n":                   "bad.toml:2: unknown key nope",
		"image = [\"a\"]\n[rules]\nallow = [\"*\"]\n":   "rule \"*\"",
		"image = [\"a\"]\n[env]\n\"A=B\" = \"c\"\n":     "env: \"A=B\" is no name of a variable",
		"image = [\"a\"]\n[network]\nech = \"maybe\"\n": "ech",
	} {
		write("bad", text)
		if _, err := s.Find("bad"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	write("bad", "image = [\"a\"]\ncommand = [\"b\"]\n")
	if _, err := s.Find("bad"); err != nil {
		t.Errorf("control: %v", err)
	}
}
