package live

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sb/lib/profile"
)

// claudeServer is a model in the guest that answers every turn and keeps what it was
// sent.
const claudeServer = `
const fs = require("fs")
require("http").createServer((q, s) => {
  let body = ""
  q.on("data", d => body += d).on("end", () => {
    if (!q.url.startsWith("/v1/messages")) { s.statusCode = 404; return s.end("{}") }
    fs.appendFileSync("asked", body + "\n")
    s.setHeader("content-type", "text/event-stream")
    const send = (type, o) => s.write("event: " + type + "\ndata: " + JSON.stringify({type, ...o}) + "\n\n")
    send("message_start", {message: {id: "msg_1", type: "message", role: "assistant", model: "claude-opus-4-5", content: [], stop_reason: null, usage: {input_tokens: 1, output_tokens: 1}}})
    send("content_block_start", {index: 0, content_block: {type: "text", text: ""}})
    send("content_block_delta", {index: 0, delta: {type: "text_delta", text: "an answer-of-the-model"}})
    send("content_block_stop", {index: 0})
    send("message_delta", {delta: {stop_reason: "end_turn"}, usage: {output_tokens: 1}})
    send("message_stop", {})
    s.end()
  })
}).listen(8080)
`

// TestClaudeContinue: Claude Code itself goes on with what it said in this directory
// on the host, and then with what it said in a sandbox before.
func TestClaudeContinue(t *testing.T) {
	t.Parallel()
	claim(t, "claude", "state")
	client := agents["claude"].in(t)
	p, err := profile.Open(t.TempDir()).Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	text := "[state]\npaths = [\"~/.claude\", \"~/.claude.json\"]\nseed = [\"" + strings.Join(p.State.Seed, `", "`) + "\"]\n" +
		"[[startup]]\nrun = [\"node\", \"-e\", '''" + claudeServer + "''']\nbackground = true\n"
	k := newKind(t, text)
	turn := func(words string) *result {
		os.Remove(filepath.Join(k.work, "asked"))
		r := k.run("export ANTHROPIC_BASE_URL=http://127.0.0.1:8080 ANTHROPIC_API_KEY=sk-ant-none CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\ncurl -s --retry 30 --retry-connrefused --retry-delay 1 $ANTHROPIC_BASE_URL >/dev/null\n"+
			client+" --dangerously-skip-permissions "+words+" </dev/null; echo exit $?", "--memory=1g", "-v", packagesDir()+":/clients:ro")
		if !strings.Contains(r.stdout, "an answer-of-the-model") {
			t.Fatalf("%s: %s\n%s", words, r.stdout, r.stderr)
		}
		asked, _ := os.ReadFile(filepath.Join(k.work, "asked"))
		return &result{t: t, stdout: string(asked)}
	}
	says := func(r *result, first, second bool) {
		t.Helper()
		if strings.Contains(r.stdout, "the-first-order") != first || strings.Contains(r.stdout, "the-second-order") != second {
			t.Errorf("the model was sent the first order: %v, the second: %v, in %d bytes", strings.Contains(r.stdout, "the-first-order"), strings.Contains(r.stdout, "the-second-order"), len(r.stdout))
		}
	}
	says(turn(`-p the-first-order`), true, false)
	// What it has written is the host's own session now, and the sandbox's is gone.
	k.sessionToHost()
	if r := k.sbRun("agents", "reset", "mine"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	says(turn(`--continue -p the-second-order`), true, true)
	if err := os.RemoveAll(filepath.Join(k.home, ".claude")); err != nil {
		t.Fatal(err)
	}
	says(turn(`--continue -p another`), true, true)
	says(turn(`-p another`), false, false)
}

// sessionToHost puts the sessions of the state where the host's client has its own.
func (k *kind) sessionToHost() {
	k.t.Helper()
	f, err := os.Open(filepath.Join(k.home, "state", "sb", "agents", "mine", "state.tar"))
	if err != nil {
		k.t.Fatal(err)
	}
	defer f.Close()
	project := regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(k.work, "-")
	found := 0
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		if strings.HasPrefix(h.Name, ".claude/projects/"+project+"/") && strings.HasSuffix(h.Name, ".jsonl") {
			text, _ := io.ReadAll(r)
			k.put(h.Name, string(text))
			found++
		}
	}
	if found != 1 {
		k.t.Fatalf("%d sessions in the state", found)
	}
}
