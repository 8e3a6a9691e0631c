package live

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sb/testscripts/world"
)

// A client is a program, or a library with a program of ours around it, that verifies
// certificates in its own way; testdata/trust/client has the commands.
type client struct {
	name     string
	tells    bool   // it says who issued the certificate
	builtIn  bool   // it trusts what it was built with, and what NODE_EXTRA_CA_CERTS or DENO_CERT adds
	variable string // makes it trust the sandbox's CA where no store does
	stores   bool   // it trusts the guest's stores where no variable is set
	basic    bool   // its credential is a password
}

var clients = []client{
	{name: "curl", tells: true, variable: "CURL_CA_BUNDLE", stores: true},
	{name: "wget", stores: true},
	{name: "openssl", tells: true, variable: "SSL_CERT_FILE", stores: true},
	{name: "gnutls-cli", tells: true, stores: true},
	{name: "git", tells: true, variable: "GIT_SSL_CAINFO", stores: true},
	{name: "node-https", tells: true, builtIn: true, variable: "NODE_EXTRA_CA_CERTS"},
	{name: "node-fetch", builtIn: true},
	{name: "deno", builtIn: true, variable: "DENO_CERT"},
	{name: "bun", builtIn: true},
	{name: "urllib", tells: true, variable: "SSL_CERT_FILE", stores: true},
	{name: "requests", tells: true, variable: "REQUESTS_CA_BUNDLE", stores: true},
	{name: "pip", basic: true},
	{name: "uv"},
	{name: "botocore", variable: "AWS_CA_BUNDLE"},
	{name: "cargo", variable: "CARGO_HTTP_CAINFO", stores: true},
	{name: "java", tells: true},
	{name: "perl", tells: true, variable: "PERL_LWP_SSL_CA_FILE", stores: true},
	{name: "go", tells: true, variable: "SSL_CERT_FILE", stores: true},
}

// bound is the host that the client's secret is bound to.
func (c client) bound() string {
	if c.basic {
		return "git.example.org"
	}
	return "keys.example.org"
}

// credential is what the server knows of the client's, if it got this value.
func (c client) credential(value string) string {
	if c.basic {
		return world.Digest("Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+value)))
	}
	return world.Digest("Bearer " + value)
}

const unbound = "allowed.example.org"

// script asks the bound host, one that is not bound and one that nobody should trust,
// as the guest is; and then the bound one with the client's variable alone, with
// nothing, and with the stores alone.
func (c client) script() string {
	ask := "client " + c.name + " "
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("echo '== as the guest is'")
	if c.builtIn {
		line("%s %s %s", ask, c.name, c.bound())
		line("NODE_EXTRA_CA_CERTS=/tmp/both.crt DENO_CERT=/tmp/both.crt %s %s %s %s", ask, c.name, unbound, world.UnknownCA)
	} else {
		line("%s %s %s %s %s", ask, c.name, c.bound(), unbound, world.UnknownCA)
	}
	if c.variable != "" {
		line("echo '== variable'; no_stores %s=$%s %s %s-variable %s", c.variable, c.variable, ask, c.name, c.bound())
	}
	if c.variable != "" || c.builtIn {
		line("echo '== nothing'; no_stores %s %s-nothing %s", ask, c.name, c.bound())
	}
	if c.stores {
		line("echo '== stores'; bare %s %s-stores %s", ask, c.name, c.bound())
	}
	line("echo '== placeholder'; echo $MINE")
	return b.String()
}

// trustPrelude has the guest trust the world's CA too, as an administrator does. The
// stores are hidden in a namespace of the command's own, in which the files that
// variables name are whole.
const trustPrelude = `
PATH=$PATH:/trust:/client/usr/bin
cat /world/ca.pem >>"$(readlink -f "$SSL_CERT_FILE")"
cat "$NODE_EXTRA_CA_CERTS" /world/ca.pem >/tmp/both.crt
bare() { env -i PATH="$PATH" HOME="$HOME" MINE="$MINE" "$@"; }
no_stores() { unshare -m sh -euc '
	cat "$SSL_CERT_FILE" >/tmp/bundle
	mount -t tmpfs none /etc/ssl/certs
	cp /etc/sb/ca.crt /tmp/ca; mount -t tmpfs none /etc/sb; cp /tmp/ca /etc/sb/ca.crt; cp /tmp/bundle /etc/sb/bundle.crt
	exec env -i PATH="$PATH" HOME="$HOME" MINE="$MINE" "$@"' sh "$@"; }
`

// TestTrust: clients of many makers reach the host of a secret, whose certificate is
// of the sandbox's CA, and get through with the secret; another host's certificate is
// its own, and what the client sends there is what it has; a host whose CA nobody has
// is refused. Each variable that sb sets does so alone, and the stores do without any.
func TestTrust(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			claim(t, "trust", "43", "44")
			c.test(t)
		})
	}
}

func (c client) test(t *testing.T) {
	dir := clientsDir(os.Getenv(dataVar))
	if reason, err := os.ReadFile(filepath.Join(dir, c.name+".missing")); err == nil {
		t.Skipf("SKIP %s", reason)
	}
	own, err := filepath.Abs("testdata/trust")
	if err != nil {
		t.Fatal(err)
	}
	script := trustPrelude
	if c.name == "java" {
		script += "keytool -importcert -cacerts -noprompt -storepass changeit -alias world -file /world/ca.pem\n"
	}
	flags := []string{"--allow", unbound, "--allow", world.UnknownCA, "-v", own + ":/trust:ro"}
	if a, ok := others[c.name]; ok {
		flags = append(flags, "-v", filepath.Join(dir, a.dir(c.name))+":/client:ro")
	}
	r := run(t, box{image: clientsRef, config: secretConfig(), env: []string{"SB_TEST_SECRET=" + aSecret}, flags: flags, script: script + c.script()})
	r.ok(t)
	got := seen(t).Credentials
	placeholder := r.section("placeholder")
	c.ok(t, r, got, "as the guest is", c.bound(), "sb sandbox ", c.name, aSecret)
	c.ok(t, r, got, "as the guest is", unbound, "the world's CA", c.name, placeholder)
	c.refused(t, r, got, "as the guest is", world.UnknownCA, c.name)
	if c.variable != "" {
		c.ok(t, r, got, "variable", c.bound(), "sb sandbox ", c.name+"-variable", aSecret)
	}
	if c.variable != "" || c.builtIn {
		c.refused(t, r, got, "nothing", c.bound(), c.name+"-nothing")
	}
	if c.stores {
		c.ok(t, r, got, "stores", c.bound(), "sb sandbox ", c.name+"-stores", aSecret)
	}
}

// ok checks that the client got an answer of the host, whose certificate that issuer
// made, and the host the credential with that value.
func (c client) ok(t *testing.T, r *result, got map[string]string, section, host, issuer, as, value string) {
	t.Helper()
	if !c.tells {
		issuer = "-"
	}
	if !regexp.MustCompile(`(?m)^` + host + ` ok .*` + issuer).MatchString(r.section(section)) {
		t.Errorf("%s, %s: want a certificate of %q; the client says\n%s", section, host, issuer, r.section(section))
	}
	if digest := got[host+"/seen/"+as]; digest != c.credential(value) {
		t.Errorf("%s: %s got the credential %q, want %q", section, host, digest, c.credential(value))
	}
}

// refused checks that the client refused the host for its certificate, and that the
// host got nothing.
func (c client) refused(t *testing.T, r *result, got map[string]string, section, host, as string) {
	t.Helper()
	if !regexp.MustCompile(`(?mi)^` + host + ` failed .*(certificat|PKIX|issuer|SSL)`).MatchString(r.section(section)) {
		t.Errorf("%s: %s was not refused for its certificate; the client says\n%s", section, host, r.section(section))
	}
	if digest, ok := got[host+"/seen/"+as]; ok {
		t.Errorf("%s: %s got the credential %q", section, host, digest)
	}
}
