package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestShareHome: the whole home is shared by that word alone; then keys and our own
// directories are not in it, by any name and whatever is done above them, what starts
// with a session stays as it is, and the rest is as of any workspace. Our own
// directories are never shared.
func TestShareHome(t *testing.T) {
	t.Parallel()
	claim(t, "bad-input", "share-home")
	k := newKind(t, "")
	keys := []string{".ssh/id_ed25519", ".netrc", ".claude/.credentials.json", ".config/gh/hosts.yml", "dot/aws/credentials"}
	for _, name := range keys {
		k.put(name, "KEY "+secretly)
	}
	os.Symlink("dot/aws", filepath.Join(k.home, ".aws"))
	for _, name := range []string{".bashrc", ".ssh/config", "Documents/letter", "dot/plain"} {
		k.put(name, "plain\n")
	}
	k.put("state/sb/log/old-1.log", secretly)
	os.Chmod(filepath.Join(k.home, "state", "sb"), 0o700)
	os.Chmod(filepath.Join(k.home, "state", "sb", "log"), 0o700)
	for _, dir := range []string{k.home, filepath.Dir(k.home), "/"} {
		if r := k.run("echo inside", "-w", dir); r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "whole h") {
			t.Errorf("%s unasked: %d, %q, %s", dir, r.code, r.stdout, r.stderr)
		}
	}
	for _, dir := range []string{"state/sb", "state/sb/log", "config/sb"} {
		for _, flags := range [][]string{{"-w", filepath.Join(k.home, dir)}, {"-v", filepath.Join(k.home, dir) + ":/x:ro"}, {"-w", filepath.Join(k.home, dir), "--share-home"}} {
			if r := k.run("echo inside", flags...); r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "a directory of sb's own") {
				t.Errorf("%q: %d, %q, %s", flags, r.code, r.stdout, r.stderr)
			}
		}
	}
	before := texts(t, k.home)
	r := k.run(`
echo "== plain"; cat Documents/letter dot/plain .ssh/config .bashrc; echo x >Documents/new && cat Documents/new
echo "== keys"; sudo -n grep -rls `+"CANARY"+` .; sudo -n ls -A .ssh .aws state/sb config/sb 2>&1 | sort
echo "== changes"; for f in .ssh/id_ed25519 .ssh/config .bashrc .netrc .aws state/sb config/sb/config.toml .config/autostart/x; do sudo -n sh -c 'echo evil >'$f 2>/dev/null && echo "WROTE $f"; sudo -n mv $f moved 2>/dev/null && echo "MOVED $f"; done
for d in .ssh state config dot .claude .config; do sudo -n mv $d moved 2>/dev/null && echo "MOVED $d"; done; echo tried
echo "== end"`, "-w", k.home, "--share-home")
	r.ok(t)
	r.says(t, "plain", `^plain\nplain\nplain\nplain\nx$`)
	if got := r.section("keys"); strings.Contains(got, "./") || strings.Contains(got, "id_ed") || strings.Contains(got, "log") || !strings.Contains(got, "config\n") {
		t.Errorf("the guest sees %q", got)
	}
	if got := r.section("changes"); got != "tried" {
		t.Errorf("the guest did:\n%s", got)
	}
	if !strings.Contains(r.stderr, "your whole home directory "+k.home+" is shared") {
		t.Errorf("it is not said: %s", r.stderr)
	}
	after := texts(t, k.home)
	for path, text := range before {
		if after[path] != text && !strings.HasPrefix(path, filepath.Join(k.home, "state")) {
			t.Errorf("%s is %q now", path, after[path])
		}
	}
	if after[filepath.Join(k.home, "Documents/new")] != "x\n" {
		t.Error("control: what the guest wrote is not there")
	}
}

// TestTwoInOneWorkspace: two machines may work in one directory; the second is told,
// and each sees what the other does.
func TestTwoInOneWorkspace(t *testing.T) {
	t.Parallel()
	claim(t, "bad-input", "two")
	env, state := homes(t)
	dir := workspace(t)
	first := startIn(t, box{flags: []string{"-w", dir}, script: `echo first >of-first; echo up; until test -e of-second; do sleep 0.1; done; cat of-second; echo seen; sleep 1000`}, env, state)
	const told = "another sandbox works in "
	second := startIn(t, box{flags: []string{"-w", dir}, script: `cat of-first; echo second >of-second; echo up; sleep 1000`}, env, state)
	first.until("the other's file", func() bool { return strings.Contains(first.out.String(), "second\nseen\n") })
	if !strings.HasPrefix(second.out.String(), "first\nup\n") || !strings.Contains(second.errs.String(), told+dir) || strings.Contains(first.errs.String(), told) {
		t.Errorf("%q\nthe first: %s\nthe second: %s", second.out, first.errs, second.errs)
	}
	other := startIn(t, box{flags: []string{"-w", workspace(t)}, script: "echo up; sleep 1000"}, env, state)
	if strings.Contains(other.errs.String(), told) {
		t.Errorf("control: in another directory: %s", other.errs)
	}
}
