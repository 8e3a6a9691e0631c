package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const canary = "canary-5f2b"

// TestClean: settings without what is named like a secret, any text without what
// looks like one, and the rest as it was.
func TestClean(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"settings.json", `{"env":{"A":"` + canary + `"},"model":"opus","n":12345678901234567890,"mcpServers":{"x":{"command":"c","env":{"T":"` + canary + `"},"headers":{"a":"` + canary + `"}}},"apiKeyHelper":"echo ` + canary + `","githubToken":"` + canary + `","list":[{"password":"` + canary + `"}],"hooks":{"Stop":[]}}`,
			`"hooks""list""mcpServers""command":"c""model":"opus""n":12345678901234567890`},
		{"config.toml", "model = \"m\"\n[mcp_servers.x]\ncommand = \"c\"\n[mcp_servers.x.env]\nT = \"" + canary + "\"\n[[p]]\napi_key = \"" + canary + "\"\nk = 1\n", `model = "m"`},
		{"CLAUDE.md", "use sk-ant-api03-" + canary + canary + " or ghp_abcdefghijklmnopqrst" + strings.ReplaceAll(canary, "-", "x") + " and eyJhbGciOiJIUzI1NiJ9.eyJ" + canary + "xxxx.sig; go on", "go on"},
		{"a.pem.md", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + canary + "\n-----END OPENSSH PRIVATE KEY-----\nrest", "rest"},
		{"args.json", `{"args":["-y","@s/postgres","postgresql://u:` + canary + `@db/prod","--access-token","` + canary + `","--api-key=` + canary + `","-e","GITHUB_TOKEN=` + canary + `","--header","Authorization: Bearer ` + canary + `","X-API-Key:` + canary + `","--verbose","keep"],"url":"https://h/mcp?api_key=` + canary + `&v=2&key=` + canary + `","cmd":"curl -H 'Authorization: Basic ` + canary + `' https://h/"}`,
			`"-y""@s/postgres"`},
		{"kept.json", `{"args":["--max-tokens","--verbose","keep"],"hook":"echo done","model":"a: b","url":"https://h/mcp?v=2","note":"the token counts","env-ref":"Authorization: Bearer ${T}"}`,
			`"--max-tokens","--verbose","keep""hook":"echodone""note":"thetokencounts""env-ref":"Authorization:Bearer${T}"`},
		{"a.toml", "[mcp_servers.x]\nargs = [\"--token\", \"" + canary + "\", \"--password=" + canary + "\", \"keep\"]\nurl = \"redis://:" + canary + "@h\"\n", `"keep"`},
		{"y.md", "sk_live_" + strings.ReplaceAll(canary, "-", "x") + canary + " sbp_0123456789abcdef" + canary + " https://hooks.slack.com/services/T0/B0/0123456789" + strings.ReplaceAll(canary, "-", "x") + " sk_short pk_is_a_key", "sk_short pk_is_a_key"},
		{"x.md", "https://user:" + canary + "@host/path and http://host:8080/a@b", "http://host:8080/a@b"},
		{"x.jsonl", `{"text":"plain words stay: a task of token counting"}`, "a task of token counting"},
	} {
		got, err := Clean(c.name, []byte(c.text))
		if err != nil || strings.Contains(strings.ReplaceAll(string(got), "x", "-"), canary) || strings.Contains(string(got), "canary") {
			t.Errorf("%s: %v, %s", c.name, err, got)
		}
		plain := strings.NewReplacer(" ", "", "\n", "").Replace(string(got))
		for part := range strings.SplitSeq(strings.ReplaceAll(c.want, `""`, "\"\x00\""), "\x00") {
			if !strings.Contains(plain, strings.ReplaceAll(part, " ", "")) {
				t.Errorf("%s: no %s in %s", c.name, part, got)
			}
		}
	}
	for _, name := range []string{"a.json", "a.toml"} {
		if _, err := Clean(name, []byte("{not = "+canary)); err == nil {
			t.Errorf("%s: settings that cannot be read were taken", name)
		}
	}
}

// TestTake: the files of a pattern; no credential's, none of another directory's
// history, and nothing that a link leads to outside.
func TestTake(t *testing.T) {
	home := t.TempDir()
	put := func(name string) {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"of":"`+name+`"}`), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"outside.json", ".ssh/id_rsa", ".claude/settings.json", ".claude/.credentials.json", ".claude/skills/s/SKILL.md", ".claude/skills/s/.env", ".claude/skills/s/secrets.yaml", ".claude/skills/s/api_key.txt", ".claude/projects/-home-u-my-app/1.jsonl", ".claude/projects/-home-u-other/2.jsonl"} {
		put(name)
	}
	for link, to := range map[string]string{"skills/s/in.md": "SKILL.md", "skills/s/out.md": "../../../outside.json", "skills/s/key.md": filepath.Join(home, ".ssh/id_rsa"), "skills/s/cred.md": "../../.credentials.json", "skills/s/dir.md": ".."} {
		if err := os.Symlink(to, filepath.Join(home, ".claude", link)); err != nil {
			t.Fatal(err)
		}
	}
	source := Source{".claude", filepath.Join(home, ".claude")}
	for pattern, want := range map[string]string{
		".claude/settings.json":               ".claude/settings.json",
		".claude/*":                           ".claude/settings.json",
		".claude/skills/*/*":                  ".claude/skills/s/SKILL.md .claude/skills/s/in.md",
		".claude/projects/{project}/*.jsonl":  ".claude/projects/-home-u-my-app/1.jsonl",
		".claude/projects/--{slashes}--/*":    "",
		".claude/none":                        "",
		".claude/../outside.json":             "",
		".claude/skills/s/../../../.ssh/id_*": "",
	} {
		seeds, left := source.Take(Expand(pattern, "/home/u/my.app"))
		var names []string
		for _, s := range seeds {
			names = append(names, s.Name)
			if s.Mode != 0o750 || !strings.Contains(string(s.Text), ".claude/") {
				t.Errorf("%s: %+v", pattern, s)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q (%v)", pattern, got, want, left)
		}
		if wantLeft := strings.Contains(pattern, "skills/*/*"); wantLeft != (len(left) >= 3) && wantLeft {
			t.Errorf("%s: left out %v", pattern, left)
		}
	}
	put(".claude/agents/caf\xe9.md") // of which no archive could be read again
	if seeds, left := source.Take(".claude/agents/*"); len(seeds) != 0 || len(left) != 1 {
		t.Errorf("a name that is no text: %v, left out %v", seeds, left)
	}
	if got := Expand("{project} {slashes}", "/home/u/my.app"); got != "-home-u-my-app home-u-my.app" {
		t.Errorf("%q", got)
	}
}

// TestIsOf: a session of another directory is not this one's, though the pattern is the
// same for both; one that says nothing is.
func TestIsOf(t *testing.T) {
	const here = "/home/u/work-client"
	if a, b := Expand("{project}", here), Expand("{project}", "/home/u/work/client"); a != b {
		t.Fatalf("%s and %s differ", a, b)
	}
	for text, want := range map[string]bool{
		`{"type":"summary"}` + "\n" + `{"cwd":"/home/u/work-client","x":1}`:                   true,
		`{"type":"session","cwd": "/home/u/work-client"}` + "\n" + `{"cwd":"/elsewhere"}`:     true,
		`{"text":"\"cwd\":\"/home/u/work-client\""}` + "\n" + `{"cwd":"/home/u/work/client"}`: false,
		`{"cwd":"/home/u/work/client"}`:                                                       false,
		`{"cwd":"/home/u/work-client\q"}`:                                                     false,
		`{"text":"none"}`:                                                                     true,
	} {
		if got := (Seed{Text: []byte(text)}).IsOf(here); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
