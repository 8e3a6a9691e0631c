package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/profile"
)

// printed is the manifest that a call prints.
func (s *stage) printed(args ...string) *manifest.Manifest {
	s.t.Helper()
	got := s.run(append([]string{"--print"}, args...)...)
	if got.code != 0 {
		s.t.Fatalf("%q: exit code %d: %s", args, got.code, got.stderr)
	}
	m, err := manifest.Parse("printed", []byte(got.stdout))
	if err != nil {
		s.t.Fatalf("%q: %v in\n%s", args, err, got.stdout)
	}
	return m
}

// TestRulesAddUp: those of the profile, the configuration and the flags; a deny
// of the configuration is there whatever is asked for, for a manifest too.
func TestRulesAddUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	control := s.printed("img", "--allow", "a.example")
	if !slices.Equal(control.Rules.Allow, []string{"a.example"}) || len(control.Rules.Deny) != 0 {
		t.Errorf("without a configuration: %+v", control.Rules)
	}
	s.config("[rules]\nallow = [\"c.example\"]\ndeny = [\"bad.example\"]\n")
	m := s.printed("img", "--allow", "a.example", "--allow", "bad.example", "--deny", "worse.example")
	if !slices.Equal(m.Rules.Allow, []string{"c.example", "a.example", "bad.example"}) || !slices.Equal(m.Rules.Deny, []string{"bad.example", "worse.example"}) {
		t.Errorf("rules %+v", m.Rules)
	}
	file := filepath.Join(s.work, "my.toml")
	text, err := control.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{file, "./my.toml", "my.toml"} {
		m = s.printed(target)
		if !slices.Equal(m.Rules.Allow, []string{"a.example"}) || !slices.Equal(m.Rules.Deny, []string{"bad.example"}) {
			t.Errorf("%s: rules %+v", target, m.Rules)
		}
	}
}

// TestConfig: what holds for every sandbox, and how its mistakes are told.
func TestConfig(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.config("cpus = 7\nmemory = \"300m\"\ndisk = \"3g\"\n[images]\nshell = \"other\"\n")
	m := s.printed("shell").Machine
	if m.CPUs != 7 || m.Memory != 300<<20 || m.DiskSize != 3<<30 {
		t.Errorf("machine %+v", m)
	}
	if got := s.asked(); !slices.Contains(got, "show other") {
		t.Errorf("sb-image was asked %q", got)
	}
	m = s.printed("img", "--cpus=2", "--memory=1g", "--disk=5g").Machine
	if m.CPUs != 2 || m.Memory != 1<<30 || m.DiskSize != 5<<30 {
		t.Errorf("a flag does not beat the configuration: %+v", m)
	}
	file := filepath.Join(s.home, "config", "config.toml")
	for text, want := range map[string]string{
		"cpus = 2\n\ncpu = 2\n": file + ":3: unknown key cpu\n",
		"[rules]\nalow = []\n":  file + ":2: unknown key rules.alow\n",
		"cpus = \"2\"\n":        file + ":1: cpus: ",
		"cpus = \n":             file + ":1: ",
		"cpus = 99\n":           file + ": cpus: 99 is not between 1 and 64\n",
		"cpus = -1\n":           file + ": cpus: -1 is not between 1 and 64\n",
		"memory = \"1m\"\n":     file + ": memory: 1m is less than the 192m",
		"disk = \"1000\"\n":     file + ": disk: 1000b is no whole number of megabytes",
		"disk = \"2t\"\n":       file + ": disk: 2t is not between 1g and 1t",
		"memory = \"900t\"\n":   file + ": memory: 900t is more than the ",
		"[images]\nx = \"y\"\n": file + ": images: \"x\" is no profile (there is: claude, codex, copilot, gemini, opencode, pi, shell)\n",
		"[rules]\nallow = [\"a.example, b.example\"]\n":  file + ": ",
		"[rules]\ndeny = [\"https://bad.example/\"]\n":   file + ": ",
		"[rules]\ndeny = [\"*.example\", \"a b\"]\n":     file + ": ",
		"[run]\ncommand = [\"a key of another file\"]\n": file + ":1: unknown key run",
	} {
		s.config(text)
		s.run("img", "--print").want(t, 125, "sb-run: error: "+want)
	}
	s.config("")
	s.run("img", "--print").want(t, 0, "!error")
}

// TestECHChoice: the user's word counts more than the profile's, and without
// either nothing is said, which refuses.
func TestECHChoice(t *testing.T) {
	const auto, refuse = manifest.ECHAuto, manifest.ECHRefuse
	for _, c := range []struct{ user, kind, want manifest.ECH }{
		{"", "", ""}, {"", auto, auto}, {"", refuse, refuse}, {auto, "", auto}, {auto, refuse, auto}, {refuse, auto, refuse},
	} {
		got := network(&config{Network: profile.Network{ECH: c.user}}, &profile.Profile{Network: profile.Network{ECH: c.kind}})
		if got.ECH != c.want {
			t.Errorf("user %q, profile %q: %q", c.user, c.kind, got.ECH)
		}
	}
	var p profile.Profile
	if err := manifest.Decode("p", []byte("[network]\nech = \"auto\"\n"), &p); err != nil || p.Network.ECH != auto {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"[network]\nech = \"on\"\n", "[network]\nmtu = 1500\n"} {
		if err := manifest.Decode("p", []byte(bad), &p); err == nil {
			t.Errorf("%q: it is taken", bad)
		}
	}
}

// TestCommandWords: Docker's rules for what runs, where, as whom and with what.
func TestCommandWords(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, c := range []struct {
		name, config string
		args         []string
		want         string // the command, its words in brackets
		workdir      string
		user         string
	}{
		{"the image's command", `{"Cmd":["a","b"]}`, nil, "[a][b]", "/", "root"},
		{"replaced", `{"Cmd":["a","b"]}`, []string{"--", "c"}, "[c]", "/", "root"},
		{"behind an entrypoint", `{"Entrypoint":["e","f"],"Cmd":["a"]}`, nil, "[e][f][a]", "/", "root"},
		{"replaced behind an entrypoint", `{"Entrypoint":["e","f"],"Cmd":["a"]}`, []string{"--", "c", "d"}, "[e][f][c][d]", "/", "root"},
		{"an entrypoint alone", `{"Entrypoint":["e"]}`, nil, "[e]", "/", "root"},
		{"nothing: the user's shell", `{}`, nil, "", "/", "root"},
		{"the image's directory and user", `{"Cmd":["a"],"WorkingDir":"/srv/app/","User":"app"}`, nil, "[a]", "/srv/app", "app"},
		{"a directory as only some write it", `{"Cmd":["a"],"WorkingDir":"srv//app/."}`, nil, "[a]", "/srv/app", "root"},
		{"flags beat the image", `{"Cmd":["a"],"WorkingDir":"/srv","User":"app"}`, []string{"--workdir", "/x/../y/", "--user", "7:8"}, "[a]", "/y", "7:8"},
	} {
		s.put("image.json", `{"ref":"img","digest":"sha256:00","config":`+c.config+`}`)
		m := s.printed(append([]string{"img"}, c.args...)...)
		got := ""
		for _, w := range m.Run.Command {
			got += "[" + w + "]"
		}
		if got != c.want || m.Run.Workdir != c.workdir || m.Run.User != c.user {
			t.Errorf("%s: %s in %s as %s, want %s in %s as %s", c.name, got, m.Run.Workdir, m.Run.User, c.want, c.workdir, c.user)
		}
	}
}

// TestProfile: a profile's command, which the call's replaces whole, in the
// current directory; the image's entrypoint is not its business.
func TestProfile(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.put("image.json", `{"ref":"img","digest":"sha256:00","config":{"Entrypoint":["e"],"Cmd":["a"],"WorkingDir":"/srv","Env":["PATH=/p","A=image"]}}`)
	s.env = append(s.env, "B=here")
	m := s.printed("shell", "-e", "A=flag", "-e", "B")
	if !slices.Equal(m.Run.Command, []string{"/bin/bash"}) || m.Run.Workdir != s.work {
		t.Errorf("%q in %s", m.Run.Command, m.Run.Workdir)
	}
	if !maps.Equal(m.Run.Env, map[string]string{"PATH": "/p", "A": "flag", "B": "here", "GIT_CONFIG_SYSTEM": gitFile}) {
		t.Errorf("variables %q", m.Run.Env)
	}
	if len(m.Shares) != 1 || m.Shares[0].Host != s.work || m.Shares[0].Guest != s.work || m.Shares[0].ReadOnly {
		t.Errorf("shares %+v", m.Shares)
	}
	other := t.TempDir()
	m = s.printed("shell", "-w", other, "-v", s.work+":/data:ro", "--user", "1000:100", "--workdir", "/data", "--", "ls", "-l")
	if !slices.Equal(m.Run.Command, []string{"ls", "-l"}) || m.Run.Workdir != "/data" {
		t.Errorf("%q in %s", m.Run.Command, m.Run.Workdir)
	}
	want := []manifest.Share{{Host: s.work, Guest: "/data", ReadOnly: true, UID: 1000, GID: 100}, {Host: other, Guest: other, UID: 1000, GID: 100}}
	if !slices.EqualFunc(m.Shares, want, func(a, b manifest.Share) bool {
		return a.Host == b.Host && a.Guest == b.Guest && a.ReadOnly == b.ReadOnly && a.UID == b.UID && a.GID == b.GID
	}) {
		t.Errorf("shares %+v, want %+v", m.Shares, want)
	}
	s.run("shell", "--print", "-v", other+":"+s.work).want(t, 125, "are both to be mounted at "+s.work+": --mount and --workspace take a place once")
	// An image shares nothing unless told to.
	if m := s.printed("img"); len(m.Shares) != 0 {
		t.Errorf("shares of an image: %+v", m.Shares)
	}
}

// TestCannotReachTheGuest: what the wires cannot carry is refused before a
// machine is booted for it.
func TestCannotReachTheGuest(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	vars := filepath.Join(s.work, "vars")
	if err := os.WriteFile(vars, []byte("A=b\x00c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(s.work, "odd\xff")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 70000)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--", "printf", "\xff"}, `word 2 of the command, "\xff", is not UTF-8`},
		{[]string{"-e", "A=\xff", "--", "true"}, "the variable A: its value is not UTF-8"},
		{[]string{"--env-file", vars, "--", "true"}, "the variable A: its value holds a zero byte"},
		{[]string{"-w", odd, "--", "true"}, `its path is not UTF-8`},
		{[]string{"--", "echo", long}, "the command and its variables have "},
		{[]string{"-e", "A=" + long, "--", "true"}, "hint: pass what is long on stdin or in a file\n"},
	} {
		s.run(append([]string{"img"}, c.args...)...).want(t, 125, c.want)
	}
	if n := len(s.starts("sb-gate")); n != 0 {
		t.Errorf("%d gates were started", n)
	}
	// The control: as much as there is room for, and not only ASCII.
	long = strings.Repeat("é", 30000)
	if got := s.run("img", "--", "printf", "%s", long); got.code != 0 || got.stdout != long {
		t.Errorf("exit code %d, %d bytes of %d: %s", got.code, len(got.stdout), len(long), got.stderr)
	}
}

// TestManifestTarget: a manifest is run as it stands; a flag that would change it
// is named.
func TestManifestTarget(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.printed("img", "--allow", "a.example", "--", "true")
	m.Name = "web"
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.work, "my.toml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--allow=x.example", "--deny=x.example", "--env=A=b", "--env-file=/dev/null", "--workspace=" + s.dir, "--workdir=/", "--mount=" + s.dir + ":/x", "--cpus=2", "--memory=1g", "--disk=2g", "--user=x", "--accel=tcg"} {
		name, _, _ := strings.Cut(flag, "=")
		s.run("my.toml", flag).want(t, 125, "sb-run: error: "+name+": a manifest is run as it stands\nsb-run: hint: change my.toml, or name a profile or an image\n")
	}
	r := s.start(s.cmd("my.toml", "--no-tty", "--show-policy-log", "-i", "--no-input", "--", "sh", "-c", "echo instead; exit 4"))
	got := r.wait()
	got.want(t, 4, "!error")
	if got.stdout != "instead\n" {
		t.Errorf("stdout %q", got.stdout)
	}
	if run := filepath.Base(filepath.Dir(s.starts("sb-gate")[0].Args[1])); !strings.HasPrefix(run, "web-") {
		t.Errorf("the run's name is %s", run)
	}
	if err := os.Mkdir(filepath.Join(s.work, "dir.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.run("./none.toml").want(t, 125, "read the manifest: open ./none.toml: no such file")
	s.run("dir.toml").want(t, 125, "read the manifest dir.toml: ", "is a directory")
	s.run("oci:none.toml", "--print").want(t, 0) // an image by its transport
	if err := os.WriteFile(file, []byte("[rules]\nallow = [\"a b\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("my.toml").want(t, 125, "my.toml: ", "a b")
}

// TestNoRule: a sandbox that reaches nothing is said to be one.
func TestNoRule(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const note = "sb-run: no rule allows anything: this sandbox reaches nothing (--allow HOST opens a host)\n"
	s.run("img", "--", "true").want(t, 0, note)
	s.run("img", "--deny", "a.example", "--", "true").want(t, 0, note)
	s.run("img", "--allow", "a.example", "--", "true").want(t, 0, "!no rule")
	s.run("img", "--print").want(t, 0, "!no rule") // it shows the rules, and is what warm asks
	s.config("[rules]\nallow = [\"a.example\"]\n")
	s.run("img", "--", "true").want(t, 0, "!no rule")
}

func TestSandboxName(t *testing.T) {
	for target, want := range map[string]string{
		"shell":                        "shell-1",
		"debian:bookworm":              "debian-1",
		"docker.io/library/Debian:12":  "debian-1",
		"bootstrap:bookworm?include=a": "bootstrap-1",
		"/tmp/My.Dir/":                 "my-1",
		"-x":                           "x-1",
		"web-2":                        "web-1",
		"...":                          "sandbox-1",
		"":                             "sandbox-1",
		"日本":                           "sandbox-1",
		strings.Repeat("x", 21):        "sandbox-1",
	} {
		got := sandboxName(target, "1")
		if got != want || !manifest.ValidName(got) {
			t.Errorf("sandboxName(%q) = %q, want %q", target, got, want)
		}
	}
}

// TestNoTarget: a path is not taken for an image.
func TestNoTarget(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	dir := t.TempDir()
	s.run(dir).want(t, 125, "is a directory, and no target", "sb-run: hint: sb-run shell -w "+dir)
	s.run(".").want(t, 125, "sb-run: error: . is a directory, and no target")
	s.run("./nosuch").want(t, 125, "./nosuch is a path, and no manifest")
	s.run("/nosuch.tml").want(t, 125, "/nosuch.tml is a path, and no manifest")
	if n := len(s.starts("sb-image")); n > 0 {
		t.Errorf("sb-image was asked %d times", n)
	}
	s.run("img", "--print").want(t, 0)
	if len(s.starts("sb-image")) == 0 {
		t.Error("control: sb-image was not asked for an image")
	}
}

// TestPool: a rule for the sandbox's own addresses would allow nothing.
func TestPool(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, r := range []string{"198.18.1.7:80", "198.18.0.0/15", "198.19.0.0/16:22"} {
		s.run("img", "--print", "--allow", r).want(t, 125, "rule \""+r+"\": these addresses are the sandbox's own (198.18.0.0/15)", "sb-run: hint: ")
	}
	for _, r := range []string{"198.0.0.0/8", "198.20.0.0/16", "a.example", "a.example@198.18.0.0/15"} {
		s.run("img", "--print", "--allow", r).want(t, 0)
	}
}

// TestIncomplete: what a manifest leaves out is found, or said to be missing.
func TestIncomplete(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.printed("img", "--allow", "a.example").Machine
	file := filepath.Join(t.TempDir(), "my.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules.allow = [\"a.example\"]\n")
	s.run(file).want(t, 125, "my.toml: machine.base is not set", "sb-run: hint: sb-image path IMAGE")
	write("rules.allow = [\"a.example\"]\nmachine.base = \"" + m.Base + "\"\nrun.command = [\"true\"]\n")
	s.run(file).want(t, 0)
}

// TestCalled: words that begin with a flag are the profile's command's, others replace it.
func TestCalled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command, words []string
		want           string
	}{
		{[]string{"claude", "--yes"}, nil, "claude --yes"},
		{[]string{"claude", "--yes"}, []string{"-p", "do it"}, "claude --yes -p do it"},
		{[]string{"claude", "--yes"}, []string{"ls", "-l"}, "ls -l"},
		{nil, []string{"-p"}, "-p"},
	} {
		if got := strings.Join(called(c.command, c.words), " "); got != c.want {
			t.Errorf("%q with %q runs %q", c.command, c.words, got)
		}
	}
}
