package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/testscripts/job"
)

// accountID is the number of a user who exists nowhere.
const accountID = 54321

// account is an unprivileged user of this host with a home: sb-run is called as by
// him, with nothing set that he need not set.
type account struct {
	t    *testing.T
	home string
	work string // his project, a git repository with the bug
}

// newAccount makes one who has the tools and the kernel.
func newAccount(t *testing.T) *account {
	t.Helper()
	dir, err := os.MkdirTemp("", "sb-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &account{t, dir, filepath.Join(dir, "project")}
	hostAgents(t, dir, nil)
	a.shell(os.Geteuid(), `mkdir -p .config/sb .local/share/sb/images .local/share/sb/refs && chmod 700 .config/sb .local/share/sb && cp -a "$1" bin && cp -a "$2"/sb/kernel .local/share/sb/`,
		os.Getenv(binVar), os.Getenv(dataVar))
	for _, d := range []string{"docs", "empty"} {
		if err := os.MkdirAll(filepath.Join(a.work, d), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range job.Bug {
		if err := os.WriteFile(filepath.Join(a.work, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	a.own()
	a.shell(accountID, `cd project && ln -s ../sum.sh docs/example && git init -q -b main && git add . && git -c user.name=me -c user.email=me@example.org commit -q -m first`)
	return a
}

// own has all below his home be his.
func (a *account) own() {
	a.t.Helper()
	a.shell(os.Geteuid(), `chown -hR "$1" .`, fmt.Sprintf("%d:%d", accountID, accountID))
}

// shell runs a script in his home.
func (a *account) shell(uid int, script string, args ...string) {
	a.t.Helper()
	cmd := a.command(uid, "sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Dir = a.home
	if out, err := cmd.CombinedOutput(); err != nil {
		a.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// command is one in his project, with an environment as after logging in.
func (a *account) command(uid int, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = a.work
	cmd.Env = []string{"HOME=" + a.home, "PATH=" + a.home + "/bin:/usr/bin:/bin", "TERM=dumb"}
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}}
	}
	return cmd
}

// configure has his configuration be this, with the vendors' authority, and his
// secrets be kept in a file.
func (a *account) configure(text string) {
	a.t.Helper()
	text += fmt.Sprintf("[store]\nkind = \"file\"\nkey = \"file:%s/sb-key\"\n[broker]\nroots = [%q]\n", a.home, theVendors(a.t).roots)
	err := errors.Join(os.WriteFile(filepath.Join(a.home, "sb-key"), []byte("the-passphrase-"+hidden), 0o600),
		os.WriteFile(filepath.Join(a.home, ".config/sb/config.toml"), []byte(text), 0o600))
	if err != nil {
		a.t.Fatal(err)
	}
	a.own()
}

// profile gives him a profile of his own.
func (a *account) profile(name string, text []byte) {
	a.t.Helper()
	dir := filepath.Join(a.home, ".config/sb/agents")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name+".toml"), text, 0o600)); err != nil {
		a.t.Fatal(err)
	}
	a.own()
}

// keep has him keep a secret.
func (a *account) keep(name, value string) {
	a.t.Helper()
	cmd := a.command(accountID, filepath.Join(a.home, "bin/sb-run"), "secret", "set", name, "--stdin")
	cmd.Stdin = strings.NewReader(value)
	if out, err := cmd.CombinedOutput(); err != nil {
		a.t.Fatalf("keep the secret: %v\n%s", err, out)
	}
}

// take gives him images out of the shared store: those that a function chooses by
// what they are called.
func (a *account) take(chosen func(ref string) bool) {
	a.t.Helper()
	store := filepath.Join(os.Getenv(dataVar), "sb")
	refs, _ := filepath.Glob(filepath.Join(store, "refs", "*.json"))
	for _, file := range refs {
		text, err := os.ReadFile(file)
		if err != nil {
			a.t.Fatal(err)
		}
		var ref struct{ Ref, Digest string }
		if json.Unmarshal(text, &ref) == nil && chosen(ref.Ref) {
			a.shell(os.Geteuid(), `cp -a --reflink=auto "$1" .local/share/sb/refs/ && cp -a --reflink=auto "$2".* .local/share/sb/images/`,
				file, filepath.Join(store, "images", strings.TrimPrefix(ref.Digest, "sha256:")))
		}
	}
	a.own()
}

// sbRun has him call sb-run, and waits so long at most.
func (a *account) sbRun(limit time.Duration, words ...string) *result {
	a.t.Helper()
	cmd := a.command(accountID, filepath.Join(a.home, "bin/sb-run"), words...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { cmd.Process.Signal(syscall.SIGTERM) })
	err := cmd.Wait()
	if !timer.Stop() {
		a.t.Fatalf("%q did not end in %v\nstdout:\n%s\nstderr:\n%s\nthe vendors saw%s", words, limit, out.String(), errs.String(), shown(theVendors(a.t).Seen()))
	}
	state := filepath.Join(a.home, ".local/state/sb")
	r := &result{t: a.t, stdout: out.String(), stderr: errs.String(), audit: readAudit(a.t, state)}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.code = exit.ExitCode()
	}
	leftNothing(a.t, state)
	return r
}
