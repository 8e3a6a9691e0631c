package live

import (
	"os"
	"strings"
	"testing"
)

// TestCloneOrder: files are written, then the clone is made, then what is to start is
// started, then the command: each finds what came before it.
func TestCloneOrder(t *testing.T) {
	t.Parallel()
	claim(t, "103", "105", "134", "clone")
	k := newKind(t, `
[instructions]
file = "AGENTS.md"
text = "be careful"
[[file]]
path = "~/setting"
text = "written\n"
[[file]]
path = "~/hook"
mode = "0755"
text = "#!/bin/sh\ngit -C /workspace log --format=%s >/var/tmp/seen && cat /workspace/AGENTS.md /home/agent/setting >>/var/tmp/seen && id -u >>/var/tmp/seen\necho started >/workspace/started\n"
[[startup]]
run = ["/home/agent/hook"]
[[startup]]
run = ["sh", "-c", "cat /workspace/started >>/var/tmp/seen"]
`)
	c := &cloner{t, append(k.env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")}
	dir := c.repository("tree")
	const script = `echo "== seen"; cat /var/tmp/seen started; echo "== status"; git status --porcelain; echo "== end"`
	r := k.run(script, "-w", dir, "--clone", "--undo")
	r.ok(t)
	r.says(t, "seen", `^one\nbe careful\s*written\n0\nstarted\nstarted$`)
	r.says(t, "status", `^\?\? started$`)
	if strings.Contains(r.stderr, "startup") || !strings.Contains(r.stderr, "nothing is recorded: the guest cannot write the working directory") {
		t.Errorf("stderr:\n%s", r.stderr)
	}
	if _, err := os.Lstat(dir + "/started"); err == nil {
		t.Error("the host has it")
	}
	// Control: on the tree itself there is no clone, and there are no instructions to find.
	live := k.run(script, "-w", dir)
	live.says(t, "seen", `^one\nwritten\nstarted\nstarted$`)
	if _, err := os.Lstat(dir + "/started"); err != nil {
		t.Errorf("control: %v", err)
	}
}
