package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sb/testscripts/job"
)

// hostAgents makes a home as of one whose agents have run on this host: what they keep
// must not come to the guest.
func hostAgents(t *testing.T, home string, files map[string]string) {
	t.Helper()
	all := map[string]string{
		".claude/settings.json":                 `{"env":{"ANTHROPIC_API_KEY":"` + hidden + `-of-the-settings"}}`,
		".claude/projects/-other/session.jsonl": `{"type":"user","message":"` + hidden + `-of-another-project"}`,
		".claude.json":                          `{"primaryApiKey":"` + hidden + `-of-the-client"}`,
		".config/gh/hosts.yml":                  "oauth_token: " + hidden + "-of-gh",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found := words(hidden).inTree(t, home); len(found) < len(all) {
		t.Fatalf("control: the search finds the hidden word in %v of %d files of this host's", found, len(all))
	}
}

// hostEnv is what has clients, and sb, look for the user's files in that home.
func hostEnv(home string) []string {
	return []string{"HOME=" + home, "CLAUDE_CONFIG_DIR=", "CODEX_HOME="}
}

// ownSecrets puts an empty store of secrets over that of the shared images, for these
// tests and nobody else: their mounts are their own.
var ownSecrets = sync.OnceValue(func() error {
	dir := filepath.Join(os.Getenv(dataVar), "sb", "secrets")
	return errors.Join(os.MkdirAll(dir, 0o700), syscall.Mount("secrets", dir, "tmpfs", 0, "mode=0700"))
})

// keepSecret keeps a secret as a user does, for a run with that home and this
// configuration.
func keepSecret(t *testing.T, name, value string) (home, config string) {
	t.Helper()
	if err := ownSecrets(); err != nil {
		t.Fatalf("make a store of secrets: %v", err)
	}
	home = t.TempDir()
	hostAgents(t, home, map[string]string{"sb-key": hidden + "-the-passphrase"})
	config = fmt.Sprintf("[store]\nkind = \"file\"\nkey = \"file:%s/sb-key\"\n[broker]\nroots = [%q]\n", home, theVendors(t).roots)
	env, state := homes(t)
	writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), config)
	set := exec.Command(sbRun(), "secret", "set", name, "--stdin")
	set.Env, set.Stdin = env, strings.NewReader(value)
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("keep the secret: %v\n%s", err, out)
	}
	return home, config
}

const claudeURL = "https://api.anthropic.com/v1/messages"

// claudeCommand is Claude Code's for one order.
func claudeCommand(t *testing.T) string {
	return agents["claude"].in(t) + ` -p "` + job.Order + `" --dangerously-skip-permissions`
}

// TestClaudeKey: Claude Code itself does a task in a sandbox with a key that is not in
// it.
func TestClaudeKey(t *testing.T) {
	t.Parallel()
	claim(t, "claude", "secret")
	command := claudeCommand(t)
	key := "sk-ant-api03-" + hidden + "-the-key-of-claude"
	home, config := keepSecret(t, "anthropic", key)
	agentRun{secret: "anthropic", shows: `echo "$ANTHROPIC_API_KEY"`, command: "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 " + command, header: "x-api-key", value: key, url: claudeURL,
		env: hostEnv(home)}.play(t, config)
}

// TestClaudeSignIn: the same with the sign-in of Claude Code on this host, which has
// expired: it is refreshed here, once, and written back as the client would; the guest
// sees neither token.
func TestClaudeSignIn(t *testing.T) {
	t.Parallel()
	claim(t, "claude", "sign-in")
	command := claudeCommand(t)
	old, oldRefresh := "sk-ant-oat01-"+hidden+"-the-old-token", "sk-ant-ort01-"+hidden+"-the-old-refresh"
	now, nowRefresh := "sk-ant-oat01-"+hidden+"-the-new-token", "sk-ant-ort01-"+hidden+"-the-new-refresh"
	v := theVendors(t)
	v.grant(oldRefresh, grant{now, nowRefresh, 3600})
	home := t.TempDir()
	hostAgents(t, home, map[string]string{".claude/.credentials.json": `{"claudeAiOauth":{"accessToken":"` + old + `","refreshToken":"` + oldRefresh +
		`","expiresAt":1700000000000,"scopes":["user:inference","user:profile"],"subscriptionType":"max"},"other":"` + hidden + `-of-another"}`})
	r := agentRun{secret: "claude", shows: `echo "$CLAUDE_CODE_OAUTH_TOKEN"`, command: command, header: "Authorization", value: "Bearer " + now, url: claudeURL,
		env: hostEnv(home)}.play(t, fmt.Sprintf("[broker]\nroots = [%q]\n", v.roots))
	r.logs(t, `allow tcp platform\.claude\.com \S+ token-refresh`)
	if n := len(v.with(old)) + len(v.with(oldRefresh)) + len(v.with(nowRefresh)); n > 0 {
		t.Errorf("%d requests had another token", n)
	}
	var kept struct {
		Other  string
		Signed struct {
			AccessToken, RefreshToken, SubscriptionType string
			ExpiresAt                                   int64
			Scopes                                      []string
		} `json:"claudeAiOauth"`
	}
	file := filepath.Join(home, ".claude/.credentials.json")
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	in := time.Until(time.UnixMilli(kept.Signed.ExpiresAt))
	if err != nil || kept.Signed.AccessToken != now || kept.Signed.RefreshToken != nowRefresh || in < 30*time.Minute || in > time.Hour ||
		kept.Other != hidden+"-of-another" || kept.Signed.SubscriptionType != "max" || len(kept.Signed.Scopes) != 2 {
		t.Errorf("the client's file holds %s (%v)", text, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v (%v)", st.Mode(), err)
	}
}

// codexCommand is Codex's for one order: with a model whose tools are described by
// schemas, bodies that are not compressed, and nothing fetched on the side.
func codexCommand(t *testing.T) string {
	return agents["codex"].in(t) + ` exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --disable enable_request_compression --disable plugins --disable apps -c analytics.enabled=false -m gpt-5.5 "` + job.Order + `"`
}

// TestCodexKey: Codex does the task too. It asks for a websocket first, and then
// speaks HTTP/2.
func TestCodexKey(t *testing.T) {
	t.Parallel()
	claim(t, "codex", "secret")
	command := codexCommand(t)
	key := "sk-proj-" + hidden + "-the-key-of-codex"
	home, config := keepSecret(t, "openai", key)
	agentRun{secret: "openai", shows: `echo "$CODEX_API_KEY"`, command: command, header: "Authorization", value: "Bearer " + key, url: "https://api.openai.com/v1/responses",
		env: hostEnv(home)}.play(t, config)
}

// TestCodexSignIn: the same with the sign-in of Codex on this host, by a file of
// placeholders in the guest. The client asks which accounts there are, and finds the one
// that it was told of.
func TestCodexSignIn(t *testing.T) {
	t.Parallel()
	claim(t, "codex", "sign-in")
	command := codexCommand(t)
	token, account := hidden+"-the-token-of-codex", hidden+"-the-account"
	v := theVendors(t)
	home := t.TempDir()
	hostAgents(t, home, map[string]string{".codex/auth.json": `{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":"` + hidden + `-id","access_token":"` + token +
		`","refresh_token":"` + hidden + `-refresh","account_id":"` + account + `"}}`})
	r := agentRun{secret: "codex", shows: `grep -o "\"access_token\":\"[^\"]*" $HOME/.codex/auth.json | cut -d\" -f4`, command: command,
		header: "Authorization", value: "Bearer " + token, url: "https://chatgpt.com/backend-api/codex/responses",
		env: hostEnv(home)}.play(t, fmt.Sprintf("[broker]\nroots = [%q]\n", v.roots))
	for _, q := range v.with(token) {
		if got := q.Header.Get("ChatGPT-Account-ID"); q.Step >= 0 && len(q.Tools) > 0 && got != account {
			t.Errorf("a turn is for the account %q", got)
		}
	}
	r.logs(t, ` note broker chatgpt\.com \S+ secret-echo `)
}
