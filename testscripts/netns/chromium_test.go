package netns

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/audit"
	"sb/testscripts/world"
)

// noECH is the browser's policy that turns ECH off.
const noECH = `{"EncryptedClientHelloEnabled": false}`

// TestB2Chromium: a browser, whose every hello looks encrypted. It loads a page
// under ech = "auto" from a server that offers no ECH, and under the default with
// its policy that turns ECH off; otherwise it is refused, and the log says why.
func TestB2Chromium(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatalf("%v: make deps installs it", err)
	}
	const web, able = "443", world.ECHPort // the second one takes ECH, and serves no page
	const refused = "sni-encrypted up=0 by=guest"
	for _, c := range []struct {
		what, ech, policy, port string
		served                  bool
		log                     []string
	}{
		{"auto", "auto", "", web, true, []string{"close done by=sb ech=none", "allow allow-rule"}},
		{"the browser's policy", "", noECH, web, true, []string{"allow allow-rule"}},
		{"neither", "", "", web, false, []string{"close " + refused}},
		{"auto, to a server with ECH", "auto", "", able, false, []string{"close done by=sb ech=offered", "close " + refused}},
		{"the browser's policy, to a server with ECH", "", noECH, able, false, []string{"allow allow-rule"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, manifest{allow: []string{"allowed.example.org"}, ech: c.ech})
			out := l.chromium(t, c.policy, "https://allowed.example.org:"+c.port+"/")
			if strings.Contains(out, "served GET / host=allowed.example.org sni=allowed.example.org") != c.served {
				t.Errorf("the browser shows %q", out)
			}
			let := 0
			for _, x := range l.log() {
				if x.Gate == audit.TCP && x.Verdict == audit.Allow && x.Word("by") == "" {
					let++
				}
			}
			passes := !slices.Contains(c.log, "close "+refused)
			if (let > 0) != passes {
				t.Errorf("%d connections were let through", let)
			}
			for _, want := range c.log {
				l.tcpLine(t, world.CDN+":"+c.port, want)
			}
			if t.Failed() {
				t.Log(l.whole())
			}
		})
	}
}

// tcpLine wants a line about a connection: its verdict, its reason and words of it.
func (l *lab) tcpLine(t *testing.T, address, want string) {
	t.Helper()
	w := strings.Fields(want)
	if !slices.ContainsFunc(l.log(), func(x audit.Line) bool {
		words := strings.Fields(x.String())
		return x.Gate == audit.TCP && x.Address == address && string(x.Verdict) == w[0] && string(x.Reason) == w[1] &&
			!slices.ContainsFunc(w[2:], func(word string) bool { return !slices.Contains(words, word) })
	}) {
		t.Errorf("no line says %s of %s", want, address)
	}
}

// chromium loads a page and returns what the browser makes of it. All of its
// processes end with the first.
func (l *lab) chromium(t *testing.T, policy, url string) string {
	t.Helper()
	home := l.file("home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	prepare := ""
	if policy != "" {
		if err := os.WriteFile(l.file("policy.json"), []byte(policy), 0o644); err != nil {
			t.Fatal(err)
		}
		// Over the host's directory, in the mount namespace of this command alone.
		prepare = `mount -t tmpfs none /etc/chromium; mkdir -p /etc/chromium/policies/managed; cp "$1" /etc/chromium/policies/managed/; `
	}
	script := `set -e; ` + prepare + `shift; exec unshare --pid --fork --kill-child --mount-proc timeout 90 "$@"`
	cmd := l.inCommand("sh", "-c", script, "sh", l.file("policy.json"), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--user-data-dir="+home, "--ignore-certificate-errors-spki-list="+authorityPin(t), "--dump-dom", url)
	cmd.Env = append(cmd.Env, "HOME="+home)
	out, err := cmd.Output()
	if err != nil {
		t.Logf("chromium: %v", err)
	}
	return string(out)
}

// authorityPin names the world's CA as the browser wants it.
func authorityPin(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(world.Dir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}
