package live

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kind is a profile of its own, with a home, in which it is run again and again.
type kind struct {
	t    *testing.T
	env  []string
	home string
	work string
}

// newKind makes a profile named mine of the tests' image.
func newKind(t *testing.T, text string) *kind {
	t.Helper()
	env, state := homes(t)
	k := &kind{t: t, env: env, home: filepath.Dir(filepath.Dir(state)), work: t.TempDir()}
	k.put("config/sb/agents/mine.toml", "image = [\""+imageRef+"\"]\nuser = \"agent\"\n"+text)
	os.Chmod(filepath.Join(k.home, "config", "sb"), 0o700)
	return k
}

// put writes a file of the host's.
func (k *kind) put(name, text string) {
	k.t.Helper()
	path := filepath.Join(k.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// sbRun runs sb-run as of this home, in the working directory.
func (k *kind) sbRun(args ...string) *result {
	k.t.Helper()
	cmd := exec.Command(sbRun(), args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = k.work, k.env, &out, &errs
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	timer := time.AfterFunc(runTime, func() { cmd.Process.Kill() })
	defer timer.Stop()
	r := &result{t: k.t}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		r.code = exit.ExitCode()
	}
	r.stdout, r.stderr = out.String(), errs.String()
	return r
}

// run runs a script in a sandbox of that profile.
func (k *kind) run(script string, flags ...string) *result {
	k.t.Helper()
	args := append([]string{"mine", "--cpus=1", "--memory=512m"}, flags...)
	return k.sbRun(append(args, "--", "sh", "-c", script)...)
}

const provisions = `
[[file]]
path = "~/a dir/quoted"
text = '''"double" 'single' $HOME $(id) ` + "`id`" + ` \n'''
[[file]]
path = "/usr/local/bin/mine-tool"
mode = "0755"
text = "#!/bin/sh\necho ran as $(id -u)\n"
[[startup]]
run = "cat '/home/agent/a dir/quoted' >/var/tmp/seen; id -u >>/var/tmp/seen; mine-tool >>/var/tmp/seen"
[[startup]]
run = ["sh", "-c", "echo it cannot; exit 5"]
[[startup]]
run = ["node", "-e", "require('http').createServer((q, s) => s.end('served\\n')).listen(8099)"]
background = true
[[startup]]
run = ["touch", "/var/tmp/last"]
`

// TestProvision: what a profile has written and started before the command.
func TestProvision(t *testing.T) {
	t.Parallel()
	k := newKind(t, provisions)
	r := k.run(`
echo "== quoted"; cat "$HOME/a dir/quoted"; stat -c '%U %a' "$HOME/a dir/quoted"
echo "== tool"; mine-tool; stat -c '%U %a' /usr/local/bin/mine-tool
echo "== startup"; cat /var/tmp/seen; stat -c %U /var/tmp/seen; ls /var/tmp/last
echo "== server"; curl -sS --retry 30 --retry-delay 1 --retry-connrefused http://127.0.0.1:8099/ 2>/dev/null
echo "== other port"; curl -sS --max-time 5 http://127.0.0.1:8098/ 2>&1
echo "== hostname"; s=$(date +%s%N); getent hosts "$(hostname)" >/dev/null && echo found; e=$(date +%s%N); echo $(( (e-s)/1000000000 ))
echo "== end"`)
	r.ok(t)
	quoted := "\"double\" 'single' $HOME $(id) `id` \\n"
	check := func(name string, ids []string, ok func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { claim(t, ids...); ok(t) })
	}
	check("a profile of one's own is run", []string{"102"}, func(t *testing.T) { r.says(t, "end", `^$`) })
	check("a file is there as it was written", []string{"103"}, func(t *testing.T) {
		if got := r.section("quoted"); got != quoted+"agent 644" {
			t.Errorf("%q", got)
		}
	})
	check("one of mode 0755 can be run", []string{"104"}, func(t *testing.T) { r.says(t, "tool", `^ran as 1000\nroot 755$`) })
	check("startup sees the files, as root", []string{"105"}, func(t *testing.T) {
		if got := r.section("startup"); got != quoted+"0\nran as 0\nroot\n/var/tmp/last" {
			t.Errorf("%q", got)
		}
	})
	check("a server in the background is still up", []string{"106"}, func(t *testing.T) {
		r.says(t, "server", `^served$`)
		r.says(t, "other port", `connect`)
	})
	check("one that fails is told of, and the next are run", []string{"107", "108"}, func(t *testing.T) {
		if !strings.Contains(r.stderr, "startup 2 (sh -c echo it cannot; exit 5) ended with 5") || !strings.Contains(r.stderr, "| it cannot\n") || strings.Contains(r.stderr, "startup 1") || strings.Contains(r.stderr, "startup 4") {
			t.Errorf("stderr:\n%s", r.stderr)
		}
		r.says(t, "startup", `/var/tmp/last$`)
	})
	check("its own name is found at once", []string{"109"}, func(t *testing.T) { r.says(t, "hostname", `^found\n0$`) })
}
