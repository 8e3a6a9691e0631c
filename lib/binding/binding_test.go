package binding

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// vectors are the lines of a file, cut at their last " | ".
func vectors(t *testing.T, file string) (all [][2]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if i := strings.LastIndex(line, " | "); i >= 0 && line[0] != '#' {
			all = append(all, [2]string{line[:i], line[i+3:]})
		}
	}
	if len(all) < 20 {
		t.Fatalf("%s has %d vectors", file, len(all))
	}
	return all
}

// TestBindings: every vector of testdata/bindings.txt.
func TestBindings(t *testing.T) {
	for _, v := range vectors(t, "bindings.txt") {
		var s Settings
		good := []string{`secret = "a"`, `hosts = ["a.example"]`, `header = "authorization"`, `format = "Bearer {}"`}
		key, _, _ := strings.Cut(v[0], " ")
		good = slices.DeleteFunc(good, func(g string) bool { return strings.HasPrefix(g, key+" ") })
		if _, err := toml.Decode("[[binding]]\n"+strings.Join(good, "\n")+"\n"+strings.ReplaceAll(v[0], `\n`+"methods", "\nmethods"), &s); err != nil {
			t.Fatalf("%s: %v", v[0], err)
		}
		err := s.Check()
		if v[1] == "ok" && err != nil || v[1] != "ok" && (err == nil || !strings.Contains(err.Error(), v[1])) {
			t.Errorf("%s: %v, want %s", v[0], err, v[1])
		}
		if err != nil && key != "secret" && !strings.HasPrefix(err.Error(), "binding of a: ") {
			t.Errorf("%s: the error does not name the binding: %v", v[0], err)
		}
		if b := s.Bindings[0]; err == nil && (strings.ToLower(b.Header) != b.Header || strings.ToLower(b.Hosts[0]) != b.Hosts[0]) {
			t.Errorf("%s: not in its canonical form: %+v", v[0], b)
		}
	}
	many := Binding{Secret: "a", Header: "x-a", Format: "{}"}
	for n := range maxList {
		many.Hosts = append(many.Hosts, fmt.Sprintf("h%d.example", n))
	}
	if err := many.Check(); err != nil {
		t.Errorf("%d hosts: %v", len(many.Hosts), err)
	}
	many.Hosts = append(many.Hosts, "one-more.example")
	if err := many.Check(); err == nil {
		t.Errorf("%d hosts pass", len(many.Hosts))
	}
	many.Hosts = many.Hosts[:1]
	for range maxList {
		many.Methods = append(many.Methods, "GET")
		many.Paths = append(many.Paths, "/1", "/2", "/3", "/4")
	}
	if err := many.Check(); err != nil {
		t.Errorf("%d methods, %d paths: %v", len(many.Methods), len(many.Paths), err)
	}
	one := many
	if one.Methods = append(one.Methods, "GET"); one.Check() == nil {
		t.Errorf("%d methods pass", len(one.Methods))
	}
	denied := many
	denied.DeniedPaths = slices.Clone(many.Paths)
	if err := denied.Check(); err != nil {
		t.Errorf("%d denied paths: %v", len(denied.DeniedPaths), err)
	}
	if denied.DeniedPaths = append(denied.DeniedPaths, "/5"); denied.Check() == nil {
		t.Errorf("%d denied paths pass", len(denied.DeniedPaths))
	}
	if many.Paths = append(many.Paths, "/5"); many.Check() == nil {
		t.Errorf("%d paths pass", len(many.Paths))
	}
}

// TestSettings: what beside the bindings is refused of a configuration.
func TestSettings(t *testing.T) {
	for text, want := range map[string]string{
		"[source]\na = \"env:A\"\n[store]\nkind = \"file\"":    "",
		"[source]\n\"a b\" = \"env:A\"":                        "no name of a secret",
		"[store]\nkind = \"paper\"":                            "neither keychain nor file",
		"[store]\nkind = \"keychain\"\n[source]\na = \"fd:3\"": "",
	} {
		var s Settings
		if _, err := toml.Decode(text, &s); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := s.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestSourceVectors: every vector of testdata/sources.txt.
func TestSourceVectors(t *testing.T) {
	for _, v := range vectors(t, "sources.txt") {
		var s Settings
		_, err := toml.Decode("[source]\na = "+v[0], &s)
		got := fmt.Sprintf("%s %v", s.Sources["a"].Kind, s.Sources["a"].Words)
		if why, bad := strings.CutPrefix(v[1], "error "); bad {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %s", v[0], err, why)
			} else if strings.Contains(err.Error(), "sk-ant") {
				t.Errorf("%s: the error says what may be the secret: %v", v[0], err)
			}
		} else if err != nil || got != v[1] {
			t.Errorf("%s: %s, %v; want %s", v[0], got, err, v[1])
		}
	}
}

// TestBuiltIn: what is built in is well-formed, and each secret has a shape.
func TestBuiltIn(t *testing.T) {
	s := BuiltIn()
	for _, b := range slices.Concat(s.Bindings, s.Scoped) {
		if len(b.Hosts) == 0 {
			b.Hosts = []string{"the.users.example"}
		}
		b.GraphQL = strings.ReplaceAll(b.GraphQL, "{}", "o/r")
		before := fmt.Sprint(b)
		if err := b.Check(); err != nil || fmt.Sprint(b) != before {
			t.Errorf("%v: %v", before, err)
		}
		p := s.Placeholder(b.Secret)
		b.Placeholder = p
		if err := b.Check(); err != nil || len(p) < 26 || p == s.Placeholder(b.Secret) || strings.Contains(p, "*") {
			t.Errorf("%s: placeholder %q: %v", b.Secret, p, err)
		}
	}
	for _, want := range []string{"anthropic", "openai", "gemini", "github", "gitlab", "npm", "pypi", "huggingface", "openrouter", "mistral", "groq", "xai", "cohere"} {
		if s.Shapes[want] == "" || !slices.Contains(s.names(), want) {
			t.Errorf("%s is not built in", want)
		}
	}
	for name := range s.Shapes {
		if !slices.Contains(s.names(), name) {
			t.Errorf("the shape of %s has no binding", name)
		}
	}
	for _, of := range s.Aliases {
		if !slices.ContainsFunc(s.Bindings, func(b Binding) bool { return b.Variable == of }) {
			t.Errorf("no binding has the variable %s", of)
		}
	}
}

// TestFind: what a word of --secret means.
func TestFind(t *testing.T) {
	s := BuiltIn()
	var writes []string
	for _, part := range []string{"pulls", "issues", "comments", "labels", "milestones", "contents", "git", "merges", "merge-upstream", "commits", "releases", "statuses", "check-runs", "check-suites"} {
		writes = append(writes, "/repos/o/r.x/"+part)
	}
	own := []Binding{
		{Secret: "mine", Variable: "MINE", Hosts: []string{"a.example", "b.example"}, Header: "x-key", Format: "{}", Paths: []string{"/v1"}},
		{Secret: "mistral", Variable: "M", Hosts: []string{"m.example"}, Header: "x-key", Format: "{}"},
	}
	for _, c := range []struct{ word, want string }{
		{"anthropic", "ANTHROPIC_API_KEY api.anthropic.com x-api-key []"},
		{"codex", " chatgpt.com authorization [/backend-api/]; chatgpt.com chatgpt-account-id [/backend-api/]"},
		{"github@github.com", " github.com authorization []"},
		{"github@ghe.example", "GITHUB_TOKEN ghe.example authorization []"},
		{"npm@n.example", "NPM_TOKEN n.example authorization []"},
		{"github:o/r.x", "GITHUB_TOKEN api.github.com authorization [/repos/o/r.x /rate_limit]; api.github.com authorization [/graphql]; api.github.com authorization [" + strings.Join(writes, " ") + "]; uploads.github.com authorization [/repos/o/r.x/releases]; github.com authorization [/o/r.x.git/info/refs /o/r.x.git/git-upload-pack /o/r.x.git/git-receive-pack /o/r.x.git/info/lfs/objects/batch /o/r.x.git/info/lfs/locks /o/r.x/info/refs /o/r.x/git-upload-pack /o/r.x/git-receive-pack /o/r.x/info/lfs/objects/batch /o/r.x/info/lfs/locks]"},
		{"mine", "MINE a.example,b.example x-key [/v1]"},
		{"mine@b.example", "MINE b.example x-key [/v1]"},
		{"mine@c.example", "MINE c.example x-key []"},
		{"mistral", "M m.example x-key []"},
		{"a-b.c@X.example", "A_B_C x.example authorization []"},
		{"1@x.example", "_1 x.example authorization []"},
	} {
		found, err := s.Find(c.word, own)
		var got []string
		for _, b := range found {
			got = append(got, fmt.Sprintf("%s %s %s %v", b.Variable, strings.Join(b.Hosts, ","), b.Header, b.Paths))
		}
		if err != nil || strings.Join(got, ";") != c.want {
			t.Errorf("%s: %q, %v; want %s", c.word, strings.Join(got, ";"), err, c.want)
		}
	}
	for word, why := range map[string]string{"unknown": "where unknown goes is not known", "npm": "npm has no host of its own", "A": "is no name of a secret", "a@": "there is no name", "a@*.example": "'*'", "a@1.2.3.4": "number", "": "it has no name: write", "@a.example": "it has no name: write",
		"openai:o/r": "openai has no parts", "openai:o/r@a.example": "openai has no parts", "github:o/r@a.example": "is no repository",
		"corp@a.example:8443": "without a scheme, a port or a path", "corp@https://a.example/": "without a scheme, a port or a path", "corp@192.0.2.1": "the name of a host alone", "github:o": "is no repository", "github:o/r.git": "is no repository", "github:o/r/x": "is no repository", "github:o/..": "is no repository", "github:/r": "is no repository", "github:o/": "is no repository", "github:o/r?x": "is no repository", "github:o/%2e": "is no repository", "github:": "is no repository"} {
		if _, err := s.Find(word, own); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %s", word, err, why)
		}
	}
	found, _ := s.Find("mine", own)
	found[0].Hosts[0] = "changed.example"
	if own[0].Hosts[0] != "a.example" {
		t.Error("what was found shares memory with the configuration")
	}
}

// TestCodexLogin: what Codex is given reads as a sign-in, of placeholders alone.
func TestCodexLogin(t *testing.T) {
	s := BuiltIn()
	token, account := s.Placeholder("codex"), s.Placeholder("codex-account")
	var v struct {
		Tokens struct {
			ID      string `json:"id_token"`
			Access  string `json:"access_token"`
			Account string `json:"account_id"`
		}
	}
	if err := json.Unmarshal([]byte(CodexLogin(token, account)), &v); err != nil || v.Tokens.Access != token || v.Tokens.Account != account {
		t.Errorf("%+v, %v", v, err)
	}
	for _, jwt := range []string{token, v.Tokens.ID} {
		parts := strings.Split(jwt, ".")
		body, err := base64.RawURLEncoding.DecodeString(parts[1])
		var claims struct{ Exp int64 }
		if err != nil || len(parts) != 3 || json.Unmarshal(body, &claims) != nil || claims.Exp < 4e9 {
			t.Errorf("%s: %s, %v", jwt, body, err)
		}
	}
}

// TestRoots: an authority's file is named by where it lies, whoever reads it.
func TestRoots(t *testing.T) {
	for file, want := range map[string]bool{"/etc/ca.pem": true, "~/ca.pem": true, "ca.pem": false, "~other/ca.pem": false, "": false} {
		s := Settings{Broker: Servers{Roots: []string{file}}}
		if err := s.Check(); (err == nil) != want {
			t.Errorf("%q: %v", file, err)
		}
	}
}
