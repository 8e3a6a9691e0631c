package live

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSignalKeeps: a run that a signal ended keeps the state of its agent and the work
// in its clone, as of the end of its command.
func TestSignalKeeps(t *testing.T) {
	t.Parallel()
	claim(t, "147", "68", "signal", "clone")
	k := newKind(t, "[state]\npaths = [\"~/.agent\"]\n")
	c := &cloner{t, append(k.env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")}
	dir := c.repository("tree")
	s := startIn(t, box{image: "mine", flags: []string{"-w", dir, "--clone"}, script: `
echo old >file; git -c user.name=g -c user.email=g@g commit -qam in-clone; mkdir -p ~/.agent; echo before >~/.agent/saved
trap 'echo "at the end" >~/.agent/saved; echo new >not-committed; exit 0' TERM
echo up; while :; do sleep 0.1; done`}, c.env, filepath.Join(k.home, "state", "sb"))
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 143 || strings.Contains(s.errs.String(), "not kept") {
		t.Errorf("exit code %d\n%s", code, s.errs)
	}
	ref := c.fetch(dir, &result{t: t, stdout: s.out.String(), stderr: s.errs.String()})
	if got := c.git(dir, "show", ref+"/main:file") + c.git(dir, "show", ref+"/sb-uncommitted:not-committed"); got != "oldnew" {
		t.Errorf("the work is %q", got)
	}
	next := k.run(`echo "== saved"; cat ~/.agent/saved; echo "== end"`, "-w", dir)
	next.ok(t)
	next.says(t, "saved", `^at the end$`)
}
