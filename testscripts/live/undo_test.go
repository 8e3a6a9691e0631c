package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUndo: what root in a machine did to the working directory is shown and put
// back, its .git and what stands in the place of a directory too.
func TestUndo(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	for path, text := range map[string]string{"src/a": "a\n", "src/b": "b\n", ".git/config": "[core]\n", "../outside/a": "theirs\n"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, box{flags: []string{"-w", dir, "--undo", "--no-protect"}, script: `
echo '[core] fsmonitor = touch /tmp/owned' >.git/config
rm from-host; echo new >new; rm -r src; ln -s ../outside src
echo "== end"`})
	r.ok(t)
	if !strings.Contains(r.stderr, "recorded "+dir+": 4 files") {
		t.Errorf("stderr: %s", r.stderr)
	}
	env, _ := homes(t)
	name := ""
	if out, err := exec.Command("env", append(env, sbRun(), "undo", "ls")...).Output(); err != nil {
		t.Fatal(err)
	} else {
		for line := range strings.Lines(string(out)) {
			if strings.HasSuffix(line, " "+dir+"\n") {
				name, _, _ = strings.Cut(line, " ")
			}
		}
	}
	undo := func(want string, args ...string) {
		t.Helper()
		cmd := exec.Command(sbRun(), append([]string{"undo"}, args...)...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.Output()
		if string(out) != want || err != nil {
			t.Errorf("undo %v: %v\n%s\nwant\n%s", args, err, out, want)
		}
	}
	undo("M .git/config\nD from-host\nA new\nT src\nD src/a\nD src/b\n", "diff")
	undo("restored src/\nrestored src/a\n", "restore", "src/a")
	undo("restored from-host\nrestored src/b\n", "restore", name, "from-host", "src/b")
	undo("restored .git/config\nremoved new\n", "restore", name, "--all")
	for path, want := range map[string]string{"from-host": "hello from the host\n", "src/a": "a\n", "src/b": "b\n", ".git/config": "[core]\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, path)); string(text) != want {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(outside, "a")); string(text) != "theirs\n" {
		t.Errorf("outside: %q, %v", text, err)
	}
}
