package live

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sb/testscripts/world"
)

// TestSecretCheck: which secrets can be read is told, never what they are.
func TestSecretCheck(t *testing.T) {
	env, state := homes(t)
	writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), secretConfig())
	check := func(words ...string) (out string, code int) {
		cmd := exec.Command(sbRun(), append([]string{"secret", "check"}, words...)...)
		cmd.Env = append(env, "SB_TEST_SECRET="+aSecret, "DBUS_SESSION_BUS_ADDRESS=")
		text, _ := cmd.CombinedOutput()
		return string(text), cmd.ProcessState.ExitCode()
	}
	readable, code := check("mine")
	unknown, unknownCode := check("mine", "nowhere")
	t.Run("readable is ok", func(t *testing.T) {
		claim(t, "39")
		if code != 0 || !strings.HasPrefix(readable, "ok ") || !strings.Contains(readable, "mine") {
			t.Errorf("exit %d, %q", code, readable)
		}
	})
	t.Run("its value is not printed", func(t *testing.T) {
		claim(t, "40")
		cmd := exec.Command("sh", "-c", `echo "$SB_TEST_SECRET"`) // the control: it is there to be printed
		cmd.Env = append(env, "SB_TEST_SECRET="+aSecret)
		if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != aSecret {
			t.Errorf("the control prints %q, %v", out, err)
		}
		asJSON, _ := check("--json", "mine")
		if all := readable + unknown + asJSON; strings.Contains(all, aSecret) || !strings.Contains(asJSON, `"mine"`) {
			t.Errorf("it prints %q", all)
		}
	})
	t.Run("an unknown one is named", func(t *testing.T) {
		claim(t, "41")
		if !strings.Contains(unknown, "secret nowhere: there is none") || strings.Contains(readable, "nowhere") {
			t.Errorf("%q", unknown)
		}
	})
	t.Run("and is exit code 1", func(t *testing.T) {
		claim(t, "42")
		if unknownCode != 1 || code != 0 {
			t.Errorf("exit %d, and %d without it", unknownCode, code)
		}
	})
}

// TestSecretEnvironment: the guest's environment has the placeholder; no process of
// it has the value. The control is found in the same way.
func TestSecretEnvironment(t *testing.T) {
	t.Parallel()
	r := run(t, box{config: secretConfig(), env: []string{"SB_TEST_SECRET=" + aSecret}, script: `
echo "== env"; env | grep '^MINE='
part=canary-; export PLANTED=${part}planted; sleep 100 & unset PLANTED
echo "== value"; env | grep -c ${part}7f3Kq0; cat /proc/[0-9]*/environ | tr '\0' '\n' | grep -c ${part}7f3Kq0
echo "== control"; cat /proc/[0-9]*/environ | tr '\0' '\n' | grep -c ${part}planted
echo "== placeholder"; cat /proc/[0-9]*/environ | tr '\0' '\n' | grep -c "^MINE=$MINE\$"; true
`})
	r.ok(t)
	t.Run("the placeholder is there", func(t *testing.T) {
		claim(t, "92")
		r.says(t, "env", `^MINE=sb-[0-9A-Za-z]{40}$`)
		r.says(t, "placeholder", `^[1-9]`)
	})
	t.Run("the value is not", func(t *testing.T) {
		claim(t, "93")
		r.says(t, "value", "^0\n0$")
		r.says(t, "control", `^1$`)
	})
}

// TestSecretGit: git clones, pushes (more than 1 MiB, which it sends in chunks; by HTTP/1.1,
// since git before 2.44 may hang in that by HTTP/2, whatever the server) and
// fetches from git's own server, with a placeholder for its token. Another repository
// is refused, in words that git shows; the token is good for it, as the server shows
// outside.
func TestSecretGit(t *testing.T) {
	t.Parallel()
	claim(t, "secret", "git", "E14")
	config := strings.Replace(secretConfig(), `format = "Basic me"`, "format = \"Basic me\"\npaths = [\"/own/one.git\"]", 1)
	r := run(t, box{config: config, env: []string{"SB_TEST_SECRET=" + world.GitToken}, script: `
cd /root; export GIT_TERMINAL_PROMPT=0; git config --global user.name a; git config --global user.email a@b
u=https://git.example.org/own
echo "== clone"; git clone -q $u/one.git a 2>&1; cd a; git checkout -q -b main
echo "== push"; echo small >small; git add .; git commit -q -m small; git push -q origin main 2>&1 && echo pushed
echo "== push much"; head -c 3000000 /dev/urandom >big; git add .; git commit -q -m big; git -c http.version=HTTP/1.1 push -q origin main 2>&1 && echo pushed
echo "== clone again"; git clone -q $u/one.git ../b 2>&1; git -C ../b rev-parse HEAD; git rev-parse HEAD
echo "== fetch"; echo more >more; git add .; git commit -q -m more; git push -q origin main 2>&1; git -C ../b fetch -q 2>&1; git -C ../b rev-parse origin/main; git rev-parse HEAD
echo "== another"; git clone $u/two.git ../c 2>&1 && echo cloned
echo "== push another"; git push $u/two.git main 2>&1 && echo pushed
echo "== without"; git -c credential.helper= -c credential.https://git.example.org.helper= ls-remote $u/one.git 2>&1; true
`})
	r.ok(t)
	for section, want := range map[string]string{
		"push": `^pushed$`, "push much": `^pushed$`, "clone again": "^([0-9a-f]{40})\n[0-9a-f]{40}$", "fetch": "^([0-9a-f]{40})\n[0-9a-f]{40}$",
		"another": `refused: credential-scope`, "push another": `refused: credential-scope`, "without": `could not read Username`,
	} {
		r.says(t, section, want)
	}
	for _, section := range []string{"clone again", "fetch"} {
		if a, b, _ := strings.Cut(r.section(section), "\n"); a != b {
			t.Errorf("%s: %s is not %s", section, a, b)
		}
	}
	if all := r.section("another") + r.section("push another"); strings.Contains(all, "cloned") || strings.Contains(all, "pushed") {
		t.Error(all)
	}
	r.logs(t, `note broker git\.example\.org \S+ credential-used mine`)
	r.logsNot(t, `placeholder-elsewhere`)
	r.logs(t, `deny broker git\.example\.org \S+ credential-scope mine`)
	// The control: the same token, without a broker between.
	cmd := exec.Command("git", "ls-remote", "https://me:"+world.GitToken+"@"+world.GitHost+"/own/two.git")
	cmd.Env = append(os.Environ(), "GIT_SSL_CAINFO="+filepath.Join(world.Dir(), "ca.pem"), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("without a broker: %v\n%s", err, out)
	}
}

// TestSecretBrokerDies: while there is no broker nothing goes to its hosts; the next one
// has an authority of its own, which the guest is made to trust in the first one's place.
func TestSecretBrokerDies(t *testing.T) {
	t.Parallel()
	claim(t, "secret", "fail-closed")
	env, state := homes(t)
	writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), secretConfig())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	s := startIn(t, box{stdin: r, script: `echo up; while read -r line; do eval "$line"; done`}, append(env, "SB_TEST_SECRET="+aSecret), state)
	do := func(line string) { io.WriteString(w, line+"\n") }
	ask := func(name string) string {
		return fmt.Sprintf(`curl -sS --max-time 20 -H "Authorization: Bearer $MINE" https://keys.example.org/seen 2>&1 | sed 's/^/%s /'; echo %s done`, name, name)
	}
	want := "authorization " + world.Digest("Bearer "+aSecret)
	do("cksum </etc/sb/ca.crt; " + ask("before"))
	s.until("an answer", func() bool { return strings.Contains(s.out.String(), "before done") })
	before := s.out.String()
	if !strings.Contains(before, "before "+want) {
		t.Fatalf("with the first broker:\n%s", before)
	}
	syscall.Kill(s.pidOf("sb-broker"), syscall.SIGKILL)
	do(`while [ "$(cksum </etc/sb/ca.crt)" = "` + strings.Split(before, "\n")[1] + `" ]; do sleep 0.1; done; ` + ask("after"))
	s.until("an answer", func() bool { return strings.Contains(s.out.String(), "after done") })
	if got := s.out.String(); !strings.Contains(got, "after "+want) {
		t.Errorf("with the second broker:\n%s", got)
	}
	do(`grep -c BEGIN /etc/sb/ca.crt; n=$(wc -l </etc/sb/ca.crt); tail -n $n /etc/ssl/certs/ca-certificates.crt | cmp - /etc/sb/ca.crt && echo the new one alone; echo seen`)
	s.until("the bundle", func() bool { return strings.HasSuffix(s.out.String(), "seen\n") })
	if got := s.out.String(); !strings.HasSuffix(got, "1\nthe new one alone\nseen\n") {
		t.Errorf("the guest trusts:\n%s", got)
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.wait(runTime)
	(&result{t: t, audit: readAudit(t, state)}).logs(t, ` note run \S+ - broker-died - by=sb`)
}
