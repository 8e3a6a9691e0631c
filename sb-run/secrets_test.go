package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sb/lib/binding"
	"sb/lib/manifest"
	"sb/lib/session"
)

// TestSecretPlan: what a secret makes of a sandbox, and that nothing of it is there
// without one.
func TestSecretPlan(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	control := s.printed("img")
	if len(control.Credentials) != 0 || control.Run.Env["ANTHROPIC_API_KEY"] != "" || control.Run.Env["SSL_CERT_FILE"] != "" || len(control.Rules.Allow) != 0 {
		t.Errorf("without a secret: %+v", control)
	}
	got := s.run("img", "--secret", "anthropic", "--print")
	got.want(t, 0, "sb-run: the secret anthropic goes to api.anthropic.com: that host is allowed (--allow api.anthropic.com:443)\n")
	m, err := manifest.Parse("printed", []byte(got.stdout))
	if err != nil {
		t.Fatal(err)
	}
	b := m.Credentials[0]
	if len(m.Credentials) != 1 || b.Secret != "anthropic" || b.Header != "x-api-key" || !slices.Equal(b.Hosts, []string{"api.anthropic.com"}) {
		t.Errorf("credentials %+v", m.Credentials)
	}
	if !strings.HasPrefix(b.Placeholder, "sk-ant-api03-") || m.Run.Env["ANTHROPIC_API_KEY"] != b.Placeholder {
		t.Errorf("placeholder %q, variable %q", b.Placeholder, m.Run.Env["ANTHROPIC_API_KEY"])
	}
	for variable, file := range map[string]string{
		"NODE_EXTRA_CA_CERTS": session.TrustedFile, "DENO_CERT": session.TrustedFile,
		"SSL_CERT_FILE": session.BundleFile, "REQUESTS_CA_BUNDLE": session.BundleFile, "CURL_CA_BUNDLE": session.BundleFile, "GIT_SSL_CAINFO": session.BundleFile,
		"AWS_CA_BUNDLE": session.BundleFile, "CARGO_HTTP_CAINFO": session.BundleFile, "PERL_LWP_SSL_CA_FILE": session.BundleFile,
	} {
		if got := m.Run.Env[variable]; got != file {
			t.Errorf("%s is %q, want %q", variable, got, file)
		}
	}
	if again := s.printed("img", "--secret", "anthropic").Credentials[0].Placeholder; again == b.Placeholder {
		t.Error("two runs have one placeholder")
	}
	// What allows the host already is enough, and what the user sets stays.
	got = s.run("img", "--secret", "anthropic", "--allow", "*.anthropic.com", "-e", "ANTHROPIC_API_KEY=mine", "--print")
	got.want(t, 0, "!goes to")
	m, _ = manifest.Parse("printed", []byte(got.stdout))
	if m.Run.Env["ANTHROPIC_API_KEY"] != "mine" || !slices.Equal(m.Rules.Allow, []string{"*.anthropic.com"}) {
		t.Errorf("variable %q, rules %v", m.Run.Env["ANTHROPIC_API_KEY"], m.Rules.Allow)
	}
}

// TestSecretHosts: where a secret goes is what is built in, what the user's
// configuration says, or what the call says.
func TestSecretHosts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.config("secrets = [\"mine\"]\n[[binding]]\nsecret = \"mine\"\nvariable = \"MINE\"\nhosts = [\"A.example\"]\nheader = \"X-Key\"\nformat = \"{}\"\n")
	for _, c := range []struct {
		args  []string
		names string // of secrets and hosts
		env   string
		allow string
	}{
		{nil, "mine a.example", "MINE", "a.example:443"},
		{[]string{"--secret", "other@b.example"}, "mine a.example other b.example", "OTHER", "a.example:443 b.example:443"},
		{[]string{"--secret", "openai@b.example"}, "mine a.example openai b.example", "OPENAI_API_KEY", "a.example:443 b.example:443"},
		{[]string{"--secret", "npm@b.example"}, "mine a.example npm b.example", "NPM_TOKEN", "a.example:443 b.example:443"},
		{[]string{"--secret", "github"}, "mine a.example github api.github.com uploads.github.com github github.com", "GH_TOKEN", "a.example:443 api.github.com:443 uploads.github.com:443 github.com:443"},
	} {
		m := s.printed(append([]string{"img"}, c.args...)...)
		var names []string
		for _, b := range m.Credentials {
			names = append(names, b.Secret)
			names = append(names, b.Hosts...)
		}
		if got := strings.Join(names, " "); got != c.names {
			t.Errorf("%q: %s, want %s", c.args, got, c.names)
		}
		if m.Run.Env[c.env] == "" || strings.Join(m.Rules.Allow, " ") != c.allow {
			t.Errorf("%q: variables %v, rules %v", c.args, m.Run.Env, m.Rules.Allow)
		}
	}
	s = newStage(t)
	for args, want := range map[string]string{
		"--secret=unheard-of":          "secret unheard-of: where unheard-of goes is not known",
		"--secret=npm":                 "secret npm: npm has no host of its own",
		"--secret=Anthropic":           `"Anthropic" is no name of a secret`,
		"--secret=anthropic@*.example": "'*'",
		"--secret=":                    `secret "": it has no name: write the one that it is kept under`,
	} {
		s.run("img", args, "--print").want(t, 125, want)
	}
	if n := len(s.starts("sb-image")); n != 0 {
		t.Errorf("sb-image was started %d times before the secret was judged", n)
	}
}

// TestSecretVariable: of two secrets with one variable, the guest is given one, which is
// said.
func TestSecretVariable(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.config("[[binding]]\nsecret = \"mine\"\nvariable = \"OPENAI_API_KEY\"\nhosts = [\"a.example\"]\nheader = \"x-key\"\nformat = \"{}\"\n")
	const both = "the secrets openai and mine have the same variable, OPENAI_API_KEY: the guest finds the placeholder of mine in it, and none of openai"
	s.run("img", "--print", "--secret", "openai", "--secret", "mine").want(t, 0, both)
	s.run("img", "--print", "--secret", "mine").want(t, 0, "!warning")
	s.run("img", "--print", "--secret", "openai", "--secret", "mine", "-e", "OPENAI_API_KEY=x").want(t, 0, "!warning")
}

// TestSecretDenied: a secret whose host a rule denies is no sandbox.
func TestSecretDenied(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, deny := range []string{"api.anthropic.com", "*.anthropic.com", "api.anthropic.com:443"} {
		s.run("img", "--secret", "anthropic", "--deny", deny).want(t, 125, "the secret anthropic is for api.anthropic.com, which the rule \""+deny+"\" denies")
	}
	if len(s.starts("keeper")) != 0 || len(s.starts("sb-vm")) != 0 {
		t.Error("something was started")
	}
	s.run("img", "--secret", "anthropic", "--deny", "api.anthropic.com:80", "--", "true").want(t, 0, "!denies")
	s.config("[rules]\ndeny = [\"*.anthropic.com\"]\n")
	s.run("img", "--secret", "anthropic", "--allow", "api.anthropic.com").want(t, 125, "which the rule \"*.anthropic.com\" denies")
}

// TestSecretRun: the keeper reads the secrets before anything boots, the broker
// gets its wires, the guest is prepared before its command, and the value is in
// nothing of it.
func TestSecretRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.env = append(s.env, "REAL="+aSecret)
	s.does("sb-broker", "asks")
	s.does("keeper", "dials")
	got := s.run("img", "--secret", "anthropic", "--", "sh", "-c", "echo $ANTHROPIC_API_KEY; cat "+s.home+"/state/run/*/sandbox.toml")
	got.want(t, 0, "note in the audit log what the keeper dialled: it said \"nonsense\"")
	if strings.Contains(got.stdout, aSecret) || !strings.HasPrefix(got.stdout, "sk-ant-api03-") {
		t.Errorf("the command saw %q", got.stdout)
	}
	keeper, broker, gate := s.starts("keeper"), s.starts("sb-broker"), s.starts("sb-gate")
	if len(keeper) != 1 || len(broker) != 1 || len(gate) != 1 {
		t.Fatalf("starts: %d keepers, %d brokers, %d gates", len(keeper), len(broker), len(gate))
	}
	if a := keeper[0].Args; !slices.Equal(a[:2], []string{"keep", "anthropic"}) || keeper[0].PID != keeper[0].Group {
		t.Errorf("the keeper: %q", a)
	}
	if !slices.Contains(keeper[0].Env, "REAL="+aSecret) {
		t.Error("the keeper has not the user's environment")
	}
	for _, other := range []started{broker[0], gate[0], s.starts("sb-dns")[0], s.starts("sb-vm")[0]} {
		if strings.Contains(strings.Join(slices.Concat(other.Env, other.Args), " "), aSecret) {
			t.Errorf("the value is in %+v", other)
		}
	}
	if has := strings.Join(gate[0].Args, " "); !strings.Contains(has, "--broker=") {
		t.Errorf("the gate has no broker: %s", has)
	}
	if got := noted[string](s, "got"); !slices.Equal(got, []string{"value 14\n<nil>"}) {
		t.Errorf("the broker got %q", got)
	}
	commands := noted[session.Command](s, "commands")
	if len(commands) != 2 || commands[0].Prepare == nil || commands[0].Prepare.Trust != string(certificate(broker[0].PID)) {
		t.Errorf("commands %+v", commands)
	}
	if !strings.Contains(s.log(), " allow tcp token.example 192.0.2.1:443 token-refresh - by=sb\n") || strings.Contains(s.log(), "nonsense") {
		t.Errorf("log:\n%s", s.log())
	}
	// The control: without a secret there is neither.
	s.run("img", "--", "true").want(t, 0)
	if len(s.starts("keeper")) != 1 || strings.Contains(strings.Join(s.starts("sb-gate")[1].Args, " "), "--broker=") {
		t.Error("a broker without a secret")
	}
}

// TestSecretUnreadable: nothing boots behind a secret that cannot be read.
func TestSecretUnreadable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tool, does, want string }{
		{"keeper", "fails", "sb-run: error: sb-broker keep: no such thing\nsb-run: error: really none\nsb-run: hint: do this first\n"},
		{"keeper", "is-mute", "sb-broker keep ended: exit status 3"},
		{"sb-broker", "fails", "sb-run: error: sb-broker: no such thing"},
	} {
		s := newStage(t)
		s.does(c.tool, c.does)
		s.run("img", "--secret", "anthropic", "--", "true").want(t, 125, c.want, "!certificate")
		if len(s.starts("sb-vm")) != 0 {
			t.Error("a machine was started")
		}
		s.does(c.tool, "")
		s.run("img", "--secret", "anthropic", "--", "true").want(t, 0, "!error")
	}
}

// TestSecretInterrupted: a keeper that waits for the user is not waited for when
// the run is to end.
func TestSecretInterrupted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("keeper", "is-never-ready")
	r := s.start(s.cmd("img", "--secret", "anthropic", "--", "true"))
	r.untilStarts("keeper", 1)
	r.cmd.Process.Signal(syscall.SIGTERM)
	r.wait().want(t, 128+int(syscall.SIGTERM), "!error")
}

// TestSecretInShare: a source that the guest could read or change is none.
func TestSecretInShare(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	other, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(s.work, "key"), filepath.Join(other, "key"), filepath.Join(s.work, "tool"), filepath.Join(other, "tool")} {
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		source, share string
		code          int
	}{
		{"file:" + s.work + "/key", "-w=" + s.work, 125},
		{"file:" + s.work + "/key", "-v=" + s.work + ":/x:ro", 125},
		{"file:" + other + "/key", "-w=" + s.work, 0},
		{"cmd:" + s.work + "/tool", "-w=" + s.work, 125},
		{"cmd:" + s.work + "/tool", "-v=" + s.work + ":/x:ro", 0},
		{"cmd:" + other + "/tool", "-w=" + s.work, 0},
		{"cmd:sh " + s.work + "/tool", "-w=" + s.work, 125},
		{"cmd:sh " + other + "/tool " + s.work + "/none", "-w=" + s.work, 0},
	} {
		s.config("[source]\nanthropic = \"" + c.source + "\"\n")
		got := s.run("img", "--secret", "anthropic", c.share, "--", "true")
		if got.want(t, c.code); (c.code == 125) != strings.Contains(got.stderr, "which is shared with the guest") {
			t.Errorf("%s, %s: %s", c.source, c.share, got.stderr)
		}
	}
	s.config("")
	s.env = append(s.env, "CLAUDE_CONFIG_DIR="+s.work)
	s.run("img", "--secret", "claude", "-v="+s.work+":/x:ro", "--", "true").want(t, 125, "which is shared with the guest")
	s.run("img", "--secret", "anthropic", "-v="+s.work+":/x:ro", "--", "true").want(t, 0)
	// A sign-in whose file alone leads there.
	if err := os.Symlink(s.work+"/key", other+"/.credentials.json"); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "CLAUDE_CONFIG_DIR="+other)
	s.run("img", "--secret", "claude", "-v="+s.work+":/x:ro", "--", "true").want(t, 125, "which is shared with the guest")
	// Who is believed to be a server is not the guest's to say.
	s.config("[broker]\nroots = [\"" + s.work + "/key\"]\n")
	s.run("img", "--secret", "anthropic", "-w="+s.work, "--", "true").want(t, 125, "which is shared with the guest")
	s.run("img", "--secret", "anthropic", "-v="+s.work+":/x:ro", "--", "true").want(t, 0)
}

// TestGitPlaceholder: git is told what to present, and to go by HTTPS where it can, in
// configuration of the environment that joins what is there; gh is told the repository.
func TestGitPlaceholder(t *testing.T) {
	t.Parallel()
	m := &manifest.Manifest{Credentials: []binding.Binding{{Secret: "g", Hosts: []string{"git.example"}, Format: "Basic me", Placeholder: "P"}, {Secret: "g", GraphQL: "o/r"}}}
	m.Run.Env = map[string]string{"GIT_CONFIG_COUNT": "1"}
	addGit(m)
	if m.Run.Env["GIT_CONFIG_VALUE_2"] != "git@git.example:" || m.Run.Env["GIT_CONFIG_KEY_3"] != "url.https://git.example/.insteadOf" || m.Run.Env["GIT_CONFIG_VALUE_3"] != "ssh://git@git.example/" || m.Run.Env["GH_REPO"] != "o/r" {
		t.Errorf("variables %v", m.Run.Env)
	}
	if m.Run.Env["GIT_CONFIG_COUNT"] != "4" || m.Run.Env["GIT_CONFIG_KEY_1"] != "credential.https://git.example.helper" || !strings.Contains(m.Run.Env["GIT_CONFIG_VALUE_1"], "username=me && echo password=P") {
		t.Errorf("variables %v", m.Run.Env)
	}
}

// TestSecretFilesHidden: what the configuration says holds a secret, or the key of the
// others, does not exist for a guest, though it uses none.
func TestSecretFilesHidden(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, name := range []string{"key", "token", "tool"} {
		if err := os.WriteFile(filepath.Join(s.work, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.config("[store]\nkind = \"file\"\nkey = \"file:" + s.work + "/key\"\n[source]\nnpm = \"file:" + s.work + "/token\"\nmine = \"cmd:" + s.work + "/tool\"\n")
	for _, share := range []string{"-w=" + s.work, "-v=" + s.work + ":/x:ro", "-v=" + s.work + ":/x"} {
		m := s.printed("img", share, "--", "true")
		if got := m.Shares[0].Hidden; !slices.Equal(got, []string{"/key", "/token"}) {
			t.Errorf("%s: hidden are %q", share, got)
		}
	}
	other := t.TempDir()
	if m := s.printed("img", "-w="+other, "--", "true"); len(m.Shares[0].Hidden) != 0 {
		t.Errorf("elsewhere: hidden are %q", m.Shares[0].Hidden)
	}
}
