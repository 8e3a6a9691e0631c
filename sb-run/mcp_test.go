package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/profile"
)

const serving = `image = ["img"]
mcp = ["Memory"]
[[mcp-server]]
name = "own"
command = ["own-server", "{workspace}", "a b"]
env = { KEY = "{env:KEY}", PLAIN = "p" }
allow = ["own.example"]
[mcp-config]
path = "~/.agent/mcp.json"
`

// mcpText is what the agent's settings are told of MCP servers.
func mcpText(t *testing.T, s *stage, args ...string) (text string, allow []string) {
	t.Helper()
	m := s.printed(args...)
	for _, f := range m.Run.Files {
		if f.Merge {
			text += f.Path + " " + f.Text
		}
	}
	return text, m.Rules.Allow
}

// TestMCP: the profile's servers and the call's, each once and in any case; with their
// rules, in an environment of another name, and in the agent's own settings, without
// variables that there are not. An image has none.
func TestMCP(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.profile("mine", serving)
	environments := func() (all []string) {
		for _, st := range s.starts("sb-image") {
			for _, word := range st.Args {
				if strings.HasPrefix(word, "env:mine-") && !slices.Contains(all, word) {
					all = append(all, word)
				}
			}
		}
		return all
	}
	text, allow := mcpText(t, s, "mine", "-e", "KEY=v")
	var got struct {
		MCPServers map[string]*struct {
			Command string             `json:"command"`
			Args    []string           `json:"args"`
			Env     map[string]*string `json:"env"`
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(text, "~/.agent/mcp.json ")), &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	own := got.MCPServers["own"]
	if own == nil || own.Command != "own-server" || !slices.Equal(own.Args, []string{s.work, "a b"}) || *own.Env["KEY"] != "v" || *own.Env["PLAIN"] != "p" || own.Env["NODE_EXTRA_CA_CERTS"] != nil {
		t.Errorf("own: %s", text)
	}
	if got.MCPServers["memory"] == nil || got.MCPServers["git"] != nil || !strings.Contains(text, `"git":null`) {
		t.Errorf("servers: %s", text)
	}
	if !slices.Equal(allow, []string{"own.example"}) {
		t.Errorf("rules: %q", allow)
	}
	if all := environments(); len(all) != 1 {
		t.Errorf("environments: %q", all)
	}
	text, allow = mcpText(t, s, "mine", "--mcp", "git", "--mcp=GIT", "--mcp", "memory")
	if !strings.Contains(text, `"git":{"args":[],"command":"mcp-server-git"`) || !slices.Contains(allow, "pypi.org") || len(allow) != 3 {
		t.Errorf("with git: %q, %s", allow, text)
	}
	if all := environments(); len(all) != 2 {
		t.Errorf("environments: %q", all)
	}
	s.run("mine", "--print").want(t, 0, "the MCP server own has no KEY: the sandbox has no variable KEY")
	s.run("mine", "--mcp", "nosuch").want(t, 125, `--mcp: "nosuch" is no MCP server (there is: own, filesystem, `)
	s.run("img", "--mcp", "git").want(t, 125, "--image, --rebuild, --mcp and --no-state are for profiles, and img is none")
	s.run("pi", "--mcp", "git").want(t, 125, "--mcp: the profile pi says no place where an agent of it reads which MCP servers there are")
	if err := os.WriteFile(filepath.Join(s.work, "m.toml"), []byte("machine.base = \"/b\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("m.toml", "--mcp", "git").want(t, 125, "--mcp: a manifest is run as it stands")
	for text, want := range map[string]string{
		"mcp = [\"nosuch\"]": `"nosuch" is no MCP server`,
		"[[mcp-server]]\nname = \"A b\"\ncommand = [\"x\"]":                `mcp-server 1: "A b" is no name`,
		"[[mcp-server]]\nname = \"a\"":                                     "mcp-server 1: command: it names no program",
		"[[mcp-server]]\nname = \"a\"\ncommand = [\"x\"]\nallow = [\"*\"]": `rule "*"`,
		"[mcp-config]\npath = \"x\"":                                       `mcp-config: "x" is neither`,
		"[mcp-config]\npath = \"~/x\"\nform = \"y\"":                       `mcp-config: form: "y" is none of`,
	} {
		s.profile("bad", "image = [\"img\"]\n"+text+"\n")
		s.run("bad", "--", "true").want(t, 125, want)
	}
}

// TestMCPForms: each agent's own form.
func TestMCPForms(t *testing.T) {
	server := profile.MCPServer{Name: "x", Command: []string{"cmd", "a"}, Env: map[string]string{"K": "v"}}
	for form, want := range map[string][]string{
		"":         {`"command":"cmd"`, `"args":["a"]`, `"env":{`, `"K":"v"`},
		"codex":    {`"command":"cmd"`, `"args":["a"]`, `"env":{`, `"K":"v"`},
		"copilot":  {`"type":"local"`, `"command":"cmd"`, `"args":["a"]`, `"tools":["*"]`},
		"opencode": {`"type":"local"`, `"command":["cmd","a"]`, `"enabled":true`, `"environment":{`},
	} {
		text, err := json.Marshal(render(form, server))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s: no %s in %s", form, w, text)
			}
		}
	}
	for _, name := range []string{"claude", "codex", "gemini", "opencode", "copilot"} {
		p, err := profile.Open(t.TempDir()).Find(name)
		if err != nil || p.MCPConfig.Path == "" {
			t.Errorf("%s: %v, %+v", name, err, p)
		}
	}
}

// TestFirstStart: what an agent asks at its first start is answered for this directory
// and this run's placeholder, of which it is told the end.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	text, _ := mcpText(t, s, "claude", "-e", "ANTHROPIC_API_KEY=sk-ant-0123456789abcdefghijklmnop")
	for _, want := range []string{`"hasCompletedOnboarding":true`, `"approved":["6789abcdefghijklmnop"]`, `"projects":{"` + s.work + `":{"hasTrustDialogAccepted":true}}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	m := s.printed("claude")
	key := m.Run.Env["ANTHROPIC_API_KEY"]
	if len(key) < 30 || !strings.Contains(m.Run.Files[1].Text, `"approved":["`+key[len(key)-20:]+`"]`) {
		t.Errorf("the placeholder %s is not in %+v", key, m.Run.Files)
	}
	// A manifest that was printed is run with another placeholder.
	text2, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.work, "p.toml"), text2, 0o600); err != nil {
		t.Fatal(err)
	}
	again := s.printed("p.toml")
	other := again.Run.Env["ANTHROPIC_API_KEY"]
	if other == key || !strings.Contains(again.Run.Files[1].Text, `"approved":["`+other[len(other)-20:]+`"]`) {
		t.Errorf("another placeholder %s is not in %+v", other, again.Run.Files)
	}
}
