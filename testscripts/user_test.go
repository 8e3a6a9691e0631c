package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOrdinaryUser is everything after `make deps` as a user without privileges:
// the kernel is fetched, an image made, and a machine booted from both. The user
// exists in a mount namespace of the test alone.
func TestOrdinaryUser(t *testing.T) {
	counted(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIP: to become another user, this test needs root")
	}
	if os.Getenv("SB_BIN") == "" {
		t.Skip("SKIP: sb-vm must be as make builds it (SB_BIN)")
	}
	if testing.Short() {
		t.Skip("SKIP: fetches a kernel and makes an image, which takes a minute")
	}
	home, err := os.MkdirTemp("", "sb-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	const uid = 54321
	// Where the tools were built may be closed to others.
	if out, err := exec.Command("cp", "-a", bin, filepath.Join(home, "bin")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := fmt.Sprintf(`set -eu
cd %[1]s
for f in passwd subuid subgid; do cp /etc/$f $f 2>/dev/null || : >$f; done
echo 'sb-test:x:%[2]d:%[2]d::%[1]s:/bin/sh' >>passwd
echo 'sb-test:700000:65536' | tee -a subuid >>subgid
for f in passwd subuid subgid; do touch /etc/$f; mount --bind $f /etc/$f; done
mkdir work; chown -R %[2]d:%[2]d work; chown %[2]d:%[2]d .
exec setpriv --reuid %[2]d --regid %[2]d --clear-groups env -i HOME=%[1]s PATH=%[1]s/bin:/usr/bin:/bin:/usr/sbin:/sbin sh -euc '
cd work
echo "user $(id -u)"
test -d "$(sb-image kernel install)"
sb-image pull bootstrap:bookworm
sb-run bootstrap:bookworm -w . -- sh -c "echo hello >made; id -u"
stat -c "made by %%u" made
'`, home, uid)
	cmd := exec.Command("unshare", "-m", "sh", "-c", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{fmt.Sprint("user ", uid), "sha256:", "\n0\n", fmt.Sprint("made by ", uid)} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "not confined") {
		t.Errorf("not confined:\n%s", out)
	}
}
