package live

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sb/lib/profile"
)

// allStates is the state of every built-in profile, as one.
func allStates(t *testing.T) string {
	t.Helper()
	set := profile.Open(t.TempDir())
	names, err := set.Names()
	if err != nil {
		t.Fatal(err)
	}
	var all profile.State
	for _, name := range names {
		p, err := set.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if name != "shell" && len(p.State.Paths) == 0 {
			t.Errorf("%s keeps nothing", name)
		}
		all.Paths, all.Leave, all.Seed = append(all.Paths, p.State.Paths...), append(all.Leave, p.State.Leave...), append(all.Seed, p.State.Seed...)
	}
	list := func(key string, words []string) string {
		for i := range words {
			words[i] = strconv.Quote(words[i])
		}
		return key + " = [" + strings.Join(words, ", ") + "]\n"
	}
	return "[state]\n" + list("paths", all.Paths) + list("leave", all.Leave) + list("seed", all.Seed)
}

// secretly is in everything of the host's that must not be in a guest.
const secretly = "CANARY" + "-3b81"

// hostHome fills a home as one of a user of every agent.
func (k *kind) hostHome() {
	project := regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(k.work, "-")
	for _, name := range []string{
		".claude/.credentials.json", ".claude/projects/-home-other/1.jsonl", ".claude/projects/-home-other/memory.md", ".claude/history.jsonl", ".claude.json",
		".codex/auth.json", ".codex/history.jsonl", ".codex/sessions/2026/01/01/rollout.jsonl",
		".gemini/oauth_creds.json", ".gemini/google_accounts.json", ".gemini/mcp-oauth-tokens.json", ".gemini/.env",
		".local/share/opencode/auth.json", ".local/share/opencode/mcp-auth.json", ".pi/agent/auth.json", ".pi/agent/models.json", ".pi/agent/sessions/--home-other--/1.jsonl",
		".copilot/config.json", ".copilot/session-state/1.jsonl", ".config/gh/hosts.yml", ".netrc", ".ssh/id_ed25519", ".claude/skills/deploy/.env", ".claude/skills/deploy/key.pem",
	} {
		k.put(name, `{"token":"`+secretly+`"}`)
	}
	settings := `{"env":{"ANTHROPIC_API_KEY":"` + secretly + `"},"apiKeyHelper":"echo ` + secretly + `","seeded":"from-the-host","mcpServers":{"x":{"command":"y","env":{"T":"` + secretly + `"}}}}`
	for _, name := range []string{".claude/settings.json", ".gemini/settings.json", ".config/opencode/opencode.json", ".pi/agent/settings.json"} {
		k.put(name, settings)
	}
	k.put(".codex/config.toml", "seeded = \"from-the-host\"\n[shell_environment_policy.set]\nA_TOKEN = \""+secretly+"\"\n[mcp_servers.x.env]\nT = \""+secretly+"\"\n")
	k.put(".claude/CLAUDE.md", "seeded from-the-host\n")
	k.put(".claude/skills/deploy/SKILL.md", "seeded from-the-host\n")
	k.put(".claude/projects/"+project+"/4f1c.jsonl", `{"seeded":"from-the-host"}`+"\n")
}

// texts is what is in every file below a directory, by its path.
func texts(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			text, _ := os.ReadFile(path)
			all[path] = string(text)
		}
		return err
	})
	return all
}

// TestState: what an agent has in its home is there again; it begins with what the
// host has of settings, skills and this directory's history, and with no secret.
func TestState(t *testing.T) {
	t.Parallel()
	k := newKind(t, allStates(t))
	k.hostHome()
	before := texts(t, filepath.Join(k.home, ".claude"))
	first := k.run(`
cd "$HOME"
echo "== seeded"; find .claude .codex .gemini .config .local .pi .copilot -type f 2>/dev/null | sort
echo "== content"; grep -rl from-the-host .claude .codex .gemini .config .pi | wc -l
echo "== owner"; find .claude .codex ! -user agent | wc -l; id -u
echo "== planted"; echo `+"CANARY"+`-planted >/var/tmp/planted; grep -rls `+"CANARY"+` /home /root /tmp /etc /var /run /opt /srv /usr/local /workspace "$OLDPWD"; env | grep -c `+"CANARY"+`
echo "== cwd"; cd "$OLDPWD"; pwd; echo made >in-workspace; readlink /workspace; cat /workspace/in-workspace
echo saved >~/.claude/saved; echo '{"changed":1}' >~/.claude/settings.json; mkdir -p ~/.codex; echo rows >~/.codex/x.sqlite; echo t >~/.codex/auth.json; ln -s saved ~/.claude/link; ln -s /etc/passwd ~/.claude/passwd; mkfifo ~/.claude/fifo
echo "== end"`, "-w", k.work)
	first.ok(t)
	second := k.run(`cd; echo "== saved"; cat .claude/saved .claude/link .claude/settings.json .codex/x.sqlite; echo "== left out"; ls .codex/auth.json .claude/passwd .claude/fifo 2>&1 | grep -c "No such"; echo "== end"`)
	second.ok(t)
	without := k.run(`cd; echo "== saved"; ls -A .claude 2>&1; mkdir -p .claude; echo x >.claude/not-kept; echo "== end"`, "--no-state")
	without.ok(t)
	after := texts(t, filepath.Join(k.home, ".claude"))
	size := k.sbRun("agents", "ls")
	reset := k.sbRun("agents", "reset", "mine")
	third := k.run(`cd; echo "== saved"; ls .claude/saved .claude/not-kept 2>&1; cat .claude/settings.json; echo "== end"`)
	third.ok(t)

	check := func(name string, ids []string, ok func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { claim(t, ids...); ok(t) })
	}
	check("the host's settings, skills and history are there", []string{"146"}, func(t *testing.T) {
		for _, want := range []string{`\.claude/settings\.json`, `\.claude/CLAUDE\.md`, `\.claude/skills/deploy/SKILL\.md`, `\.claude/projects/-\S+/4f1c\.jsonl`, `\.codex/config\.toml`, `\.gemini/settings\.json`, `\.config/opencode/opencode\.json`, `\.pi/agent/settings\.json`} {
			first.says(t, "seeded", `(?m)^`+want+`$`)
		}
		first.says(t, "content", `^8$`)
		first.says(t, "owner", `^0\n1000$`)
	})
	check("no secret of the host's is there, in files or variables", []string{"state-secrets"}, func(t *testing.T) {
		first.says(t, "planted", `^/var/tmp/planted\n0$`)
		for path, text := range texts(t, filepath.Join(k.home, "state", "sb", "agents")) {
			if strings.Contains(text, secretly) {
				t.Errorf("%s has it", path)
			}
		}
	})
	check("what was saved is there again", []string{"147"}, func(t *testing.T) {
		second.says(t, "saved", `^saved\nsaved\n\{"changed":1\}\nrows$`)
		second.says(t, "left out", `^3$`)
		without.says(t, "saved", `No such file`)
		if !regexp.MustCompile(`(?m)^mine .* 0\.0M`).MatchString(size.stdout) {
			t.Errorf("agents ls:\n%s", size.stdout)
		}
	})
	check("the host's own files are as they were", []string{"148"}, func(t *testing.T) {
		if len(before) < 8 || len(before) != len(after) {
			t.Errorf("%d files before, %d after", len(before), len(after))
		}
		for path, text := range before {
			if after[path] != text {
				t.Errorf("%s was changed", path)
			}
		}
	})
	check("reset begins anew, and what was saved is gone", []string{"149", "150"}, func(t *testing.T) {
		if reset.code != 0 {
			t.Errorf("reset: %d, %s", reset.code, reset.stderr)
		}
		third.says(t, "saved", `(?s)saved': No such file.*not-kept': No such file.*"seeded": "from-the-host"`)
	})
	check("the directory is at its own path and as /workspace", []string{"151", "152", "153"}, func(t *testing.T) {
		if got := first.section("cwd"); got != k.work+"\n"+k.work+"\nmade" {
			t.Errorf("%q", got)
		}
		if text, err := os.ReadFile(filepath.Join(k.work, "in-workspace")); string(text) != "made\n" {
			t.Errorf("on the host: %q, %v", text, err)
		}
	})
}
