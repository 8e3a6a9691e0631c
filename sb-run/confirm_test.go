//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/binding"
)

// TestSecretOfFile: a manifest that asks for a secret gets it after the user has
// said yes, once, on a terminal.
func TestSecretOfFile(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.printed("img", "--secret", "anthropic", "--", "sh", "-c", "echo $ANTHROPIC_API_KEY")
	old := m.Credentials[0].Placeholder
	file := filepath.Join(s.work, "my.toml")
	write := func() {
		t.Helper()
		text, err := m.Encode()
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write()
	const asks = "my.toml asks for the secret anthropic, to be sent to api.anthropic.com"
	s.run("my.toml").want(t, 125, asks+", which nobody has confirmed (stdin is no terminal to ask at)")
	s.run("my.toml", "--no-input").want(t, 125, asks+", which nobody has confirmed (--no-input)")
	answer := func(word string) result {
		t.Helper()
		master, slave := openTerminal(t, 40, 120)
		cmd := s.cmd("my.toml", "--no-tty")
		cmd.Stdin = slave
		r := s.start(cmd)
		r.until("the question", func() bool { return strings.Contains(r.errs.String(), "Allow it? [y/N]") })
		master.WriteString(word + "\n")
		return r.wait()
	}
	answer("").want(t, 125, asks+", which was not allowed")
	if len(s.starts("keeper")) != 0 {
		t.Error("a keeper was started")
	}
	answer("y").want(t, 0, asks+",\nin x-api-key as \"{}\", not paths /v1/organizations. Allow it? [y/N] ")
	got := s.run("my.toml", "--no-input")
	got.want(t, 0, "!asks for")
	if !strings.HasPrefix(got.stdout, "sk-ant-api03-") || strings.TrimSpace(got.stdout) == old {
		t.Errorf("the placeholder is %q, the file's %q", got.stdout, old)
	}
	// Another way to use it is another question.
	m.Credentials[0].Inject = "always"
	write()
	s.run("my.toml").want(t, 125, asks)
	m.Credentials[0].Inject = ""
	for want, change := range map[string]func(b *binding.Binding){
		`in x-api-key as "Token {}"`: func(b *binding.Binding) { b.Format = "Token {}" },
		", for websockets too":       func(b *binding.Binding) { b.Websocket = true },
	} {
		before := m.Credentials[0]
		change(&m.Credentials[0])
		write()
		answer("n").want(t, 125, want, asks+", which was not allowed")
		m.Credentials[0] = before
	}
	m.Rules.Allow = nil
	write()
	s.run("my.toml").want(t, 125, "the secret anthropic is for api.anthropic.com, which no rule allows")
}
