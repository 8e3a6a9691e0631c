package live

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sb/testscripts/world"
)

// secretConfig gives every sandbox one secret, in two ways, and the world's
// authority to the broker.
func secretConfig() string {
	return fmt.Sprintf(`secrets = ["mine"]
[source]
mine = "env:SB_TEST_SECRET"
[broker]
roots = [%q]
[[binding]]
secret = "mine"
variable = "MINE"
hosts = ["keys.example.org"]
header = "authorization"
format = "Bearer {}"
[[binding]]
secret = "mine"
hosts = ["git.example.org"]
header = "authorization"
format = "Basic me"
`, filepath.Join(world.Dir(), "ca.pem"))
}

// aSecret is a value that is nowhere else.
const aSecret = "canary-7f3Kq0ZcXw5Jm2Rt"

// TestSecret: clients of the guest, each with the system's own trust or by the
// variables that are set for them, reach the host of a secret with the placeholder,
// and the server gets the value; others see the real server. Nothing in the guest
// has the value; what the same search finds is a canary of the guest's own.
func TestSecret(t *testing.T) {
	t.Parallel()
	claim(t, "secret")
	r := run(t, box{config: secretConfig(), env: []string{"SB_TEST_SECRET=" + aSecret}, flags: []string{"--allow", "allowed.example.org"}, script: `
echo "== variable"; echo "$MINE"
echo "== curl"; curl -sS --max-time 20 -H "Authorization: Bearer $MINE" https://keys.example.org/seen
echo "== curl without variables"; env -i PATH=$PATH curl -sS --max-time 20 -H "Authorization: Bearer $MINE" https://keys.example.org/seen
echo "== no placeholder"; curl -sS --max-time 20 https://keys.example.org/seen
echo "== echo"; curl -sS --max-time 20 -H "Authorization: Bearer $MINE" https://keys.example.org/echo
echo "== node"; node -e 'require("https").get({host: "keys.example.org", path: "/seen", headers: {authorization: "Bearer " + process.env.MINE}}, r => r.pipe(process.stdout)).on("error", console.log)'
echo "== elsewhere"; curl -sS --max-time 20 --cacert /world/ca.pem -H "Authorization: Bearer $MINE" https://allowed.example.org/seen
echo "== issuers"
for h in keys.example.org allowed.example.org; do curl -skv --max-time 20 https://$h/seen 2>&1 | grep issuer: ; done
echo "== untrusted"; curl -sS --max-time 20 https://allowed.example.org/seen 2>&1
echo "== git"; printf 'protocol=https\nhost=git.example.org\n\n' | git credential fill | grep -v '^host\|^protocol'
echo "== anchors"; cmp /etc/sb/ca.crt /usr/local/share/ca-certificates/sb.crt && echo same; tail -n "$(wc -l </etc/sb/ca.crt)" /etc/ssl/certs/ca-certificates.crt | cmp - /etc/sb/ca.crt && echo appended
echo "== search"
part=canary-; echo ${part}of-the-guest >/root/planted
export PLANTED=${part}of-the-guest; sleep 100 & unset PLANTED
search() { echo "$1" >/dev/shm/word; grep -rlaF -f /dev/shm/word /root /etc /tmp /run /var /home /usr/local 2>/dev/null; grep -laF -f /dev/shm/word /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; }
search ${part}7f3Kq0; echo "-- the control"; search ${part}of-the-g
`})
	r.ok(t)
	real := world.Digest("Bearer " + aSecret)
	if p := r.section("variable"); !strings.HasPrefix(p, "sb-") {
		t.Errorf("the variable holds %q", p)
	}
	for _, name := range []string{"curl", "curl without variables", "node"} {
		if got := r.section(name); !strings.Contains(got, "authorization "+real+"\n") {
			t.Errorf("%s: %s, want %s", name, got, real)
		}
	}
	if got := r.section("no placeholder"); !strings.Contains(got, "authorization -\n") {
		t.Errorf("without the placeholder the server got %s", got)
	}
	placeholder := strings.TrimSpace(r.section("variable"))
	if got := r.section("echo"); !strings.Contains(got, "authorization Bearer "+placeholder+"\n") {
		t.Errorf("the echo is %s", got)
	}
	if got := r.section("elsewhere"); !strings.Contains(got, world.Digest("Bearer "+placeholder)) {
		t.Errorf("another host got %s", got)
	}
	if got := strings.TrimSpace(r.section("anchors")); got != "same\nappended" {
		t.Errorf("the guest's certificates: %q", got)
	}
	if issuers := strings.Split(r.section("issuers"), "\n"); !strings.Contains(issuers[1], "the world's CA") || strings.Contains(issuers[0], "the world's CA") {
		t.Errorf("issuers %q", issuers)
	}
	if got := r.section("untrusted"); !strings.Contains(got, "certificate") || strings.Contains(got, "authorization") {
		t.Errorf("a host that nothing is bound to is trusted: %s", got)
	}
	if got := r.section("git"); strings.TrimSpace(got) != "username=me\npassword="+placeholder {
		t.Errorf("git presents %q", got)
	}
	if found, control, _ := strings.Cut(r.section("search"), "-- the control\n"); strings.TrimSpace(found) != "" || !strings.Contains(control, "/root/planted") || !strings.Contains(control, "/environ") {
		t.Errorf("the value is in %q; the control in %q", found, control)
	}
	if strings.Contains(r.stdout+r.stderr+r.auditText(), aSecret) || strings.Contains(r.stdout, base64.StdEncoding.EncodeToString([]byte(aSecret))) {
		t.Error("the value is in what the run said")
	}
}

// TestSecretMissing: where the value cannot be read nothing boots, and the error says
// which it is.
func TestSecretMissing(t *testing.T) {
	t.Parallel()
	claim(t, "secret-missing")
	env, state := homes(t)
	writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), secretConfig())
	cmd := exec.Command(sbRun(), box{script: "true"}.args()...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "secret mine (env:SB_TEST_SECRET): the variable SB_TEST_SECRET is not set") {
		t.Errorf("%v\n%s", err, out)
	}
	if files, _ := filepath.Glob(filepath.Join(state, "run", "*")); len(files) > 0 {
		t.Errorf("left: %v", files)
	}
}

// TestSecretByHand: the script that --print=sh prints does the same without sb-run in
// charge.
func TestSecretByHand(t *testing.T) {
	t.Parallel()
	claim(t, "secret-by-hand")
	env, state := homes(t)
	writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), secretConfig())
	env = append(env, "SB_TEST_SECRET="+aSecret)
	b := box{script: `curl -sS --max-time 20 -H "Authorization: Bearer $MINE" https://keys.example.org/seen; env | grep -c "` + aSecret + `"`}
	script := exec.Command(sbRun(), append([]string{"--print=sh"}, b.args()...)...)
	script.Env = env
	text, err := script.Output()
	if err != nil {
		t.Fatalf("--print=sh: %v", err)
	}
	dir := t.TempDir()
	byHand := exec.Command("sh", "-c", string(text))
	byHand.Env = append(env, "dir="+dir)
	out, _ := byHand.CombinedOutput()
	if !strings.Contains(string(out), "authorization "+world.Digest("Bearer "+aSecret)+"\n") || !strings.Contains(string(out), "\n0\n") {
		t.Errorf("the script\n%s\nprints\n%s", text, out)
	}
}

// TestSignIn: the sign-ins of clients on this host serve a guest that holds
// placeholders in their form, in a variable and in a file of the user's own there.
func TestSignIn(t *testing.T) {
	t.Parallel()
	claim(t, "sign-in")
	home := t.TempDir()
	for file, text := range map[string]string{
		".claude/.credentials.json": `{"claudeAiOauth":{"accessToken":"` + aSecret + `-claude","refreshToken":"` + aSecret + `-refresh","expiresAt":4070908800000}}`,
		".codex/auth.json":          `{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":"i","access_token":"` + aSecret + `-codex","refresh_token":"` + aSecret + `-refresh","account_id":"account-of-the-user"}}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := fmt.Sprintf("secrets = [\"claude@keys.example.org\", \"codex\"]\n[broker]\nroots = [%q]\n", filepath.Join(world.Dir(), "ca.pem"))
	r := run(t, box{config: config, env: []string{"HOME=" + home, "CLAUDE_CONFIG_DIR=", "CODEX_HOME="}, flags: []string{"--user=65534:65534", "-e", "HOME=/tmp"}, script: `
echo "== seen"; curl -sS --max-time 20 -H "Authorization: Bearer $CLAUDE_CODE_OAUTH_TOKEN" https://keys.example.org/seen
echo "== variable"; echo "$CLAUDE_CODE_OAUTH_TOKEN"
echo "== file"; find / -xdev -path '*/.codex/auth.json' -exec ls -ln {} + 2>/dev/null
echo "== text"; find / -xdev -path '*/.codex/auth.json' -exec cat {} + 2>/dev/null; true
`})
	r.ok(t)
	if got := r.section("seen"); !strings.Contains(got, "authorization "+world.Digest("Bearer "+aSecret+"-claude")+"\n") {
		t.Errorf("the server got %s", got)
	}
	if got := r.section("variable"); !strings.HasPrefix(got, "sk-ant-oat01-") {
		t.Errorf("the variable holds %q", got)
	}
	if got := r.section("file"); !strings.HasPrefix(got, "-rw------- 1 65534 65534 ") || !strings.Contains(got, " /tmp/.codex/auth.json") {
		t.Errorf("the file is %q", got)
	}
	if got := r.section("text"); !strings.Contains(got, `"access_token":"ey`) || strings.Contains(r.stdout, aSecret) || strings.Contains(r.stdout, "account-of-the-user") {
		t.Errorf("the file holds %s", got)
	}
}
