package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSources(t *testing.T) {
	dir := t.TempDir()
	list := write(t, filepath.Join(dir, "a.list"), []byte("# x\n\ndeb [arch=amd64 Signed-By=/keys/a.gpg] http://m/debian bookworm main\ndeb http://m/debian bookworm-updates main\n"))
	file := write(t, filepath.Join(dir, "b.sources"), []byte("Enabled: no\nTypes: deb\nSigned-By: /keys/off.gpg\n\n# a comment\n\n\nTypes: deb\nSuites: bookworm-security\n# Signed-By: /keys/no.gpg\nsigned-by: /keys/b.gpg\n\nTypes: deb\nSigned-By:\n -----BEGIN PGP\n"))
	for entry, want := range map[string]string{
		list + ":3": "/keys/a.gpg", list + ":4": "", list + ":99": "", list + ":x": "", list: "", "/no/such.list:1": "",
		file + ":1": "/keys/off.gpg", file + ":2": "/keys/b.gpg", file + ":3": "", file + ":4": "",
	} {
		if got := signedBy(entry); got != want {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
	all := []target{
		{"http://m/debian", "bookworm", "main", "bookworm", list + ":3"},
		{"http://m/debian", "bookworm", "main", "bookworm", list + ":3"}, // once more for another architecture
		{"http://m/debian", "bookworm", "contrib", "bookworm", list + ":3"},
		{"http://m/debian", "bookworm-updates", "main", "bookworm-updates", list + ":4"},
		{"http://m/debian-security", "bookworm-security", "main", "bookworm-security", file + ":2"},
		{"http://other/thing", "nodistro", "main", "nodistro", ""},
	}
	for suite, want := range map[string][]string{
		"bookworm": {
			"deb [signed-by=/keys/a.gpg] http://m/debian bookworm main", "deb [signed-by=/keys/a.gpg] http://m/debian bookworm contrib",
			"deb http://m/debian bookworm-updates main", "deb [signed-by=/keys/b.gpg] http://m/debian-security bookworm-security main",
		},
		"trixie": {
			"deb [signed-by=/keys/a.gpg] http://m/debian trixie main",
			"deb http://m/debian trixie-updates main", "deb [signed-by=/keys/b.gpg] http://m/debian-security trixie-security main",
		},
		"sid":      {"deb [signed-by=/keys/a.gpg] http://m/debian sid main"},
		"nodistro": {"deb http://other/thing nodistro main"},
	} {
		got := configured(all, suite)
		if got == nil {
			got = derived(all, suite)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", suite, got, want)
		}
	}
	if got := derived([]target{{"http://u/ubuntu", "noble", "main", "noble", ""}}, "bookworm"); got != nil {
		t.Errorf("a mirror of another distribution: %q", got)
	}
}

// fakeMmdebstrap puts an mmdebstrap on the path that gives a small archive, or fails.
func fakeMmdebstrap(t *testing.T, version, behave string) (dir string) {
	t.Helper()
	bin := t.TempDir()
	status := "Package: base-files\nStatus: install ok installed\nVersion: " + version + "\nArchitecture: amd64\n\nPackage: apt\nVersion: 2\nArchitecture: amd64\n"
	archive := tarOf(t, reg("./var/lib/dpkg/status", status, 0o644), reg("./etc/debian_version", version, 0o644))
	write(t, filepath.Join(bin, "archive"), archive)
	script := `#!/bin/sh
echo "$*" >>` + bin + `/log
cat >` + bin + `/sources
case "$*" in
*--simulate*)
	echo "Inst apt (2 Debian:12/stable [amd64])" >&2
	echo "Inst base-files (` + version + ` Debian:12/stable [amd64]) []" >&2
	echo "Inst apt (2 Debian:12/stable [amd64])" >&2 ;;
*) ` + behave + ` ;;
esac
`
	write(t, filepath.Join(bin, "mmdebstrap"), []byte(script))
	write(t, filepath.Join(bin, "apt-get"), []byte("#!/bin/sh\nprintf 'http://m/debian\\tbookworm\\tmain\\tbookworm\\t\\n'\n"))
	write(t, filepath.Join(bin, "newuidmap"), []byte("#!/bin/sh\n"))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return bin
}

func count(t *testing.T, file, what string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), what)
}

func needSubIDs(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && canBootstrap() != nil {
		t.Skip("this user has no range of numbers in /etc/subuid")
	}
}

// TestBootstrap: the archive is made once for what it is made of.
func TestBootstrap(t *testing.T) {
	s := newStore(t)
	bin := fakeMmdebstrap(t, "12.1", "cat $(dirname $0)/archive")
	needSubIDs(t)
	ref := "bootstrap:bookworm?include=curl,apt"
	first, err := pulled(t, s, ref, "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(bin, "sources")); string(b) != "deb http://m/debian bookworm main\n" {
		t.Errorf("sources: %q", b)
	}
	log := filepath.Join(bin, "log")
	if count(t, log, "--variant=minbase") != 1 || count(t, log, "--include=apt,curl ") != 1 || count(t, log, "--architectures=amd64") != 1 {
		b, _ := os.ReadFile(log)
		t.Errorf("mmdebstrap was called with %s", b)
	}
	again, err := pulled(t, s, ref, "linux/amd64")
	if err != nil || again != first || count(t, log, "--format=tar") != 1 || count(t, log, "--simulate") != 1 {
		t.Errorf("again: %s, %v, made %d times", again, err, count(t, log, "--format=tar"))
	}
	bin = fakeMmdebstrap(t, "12.2", "cat $(dirname $0)/archive")
	second, err := pulled(t, s, ref, "linux/amd64")
	if err != nil || second == first || count(t, filepath.Join(bin, "log"), "--format=tar") != 1 {
		t.Errorf("with a newer package: %s, %v", second, err)
	}
	rec, err := s.image(second)
	if err != nil || !slices.Equal(rec.Config.Cmd, []string{"bash"}) || len(rec.Config.Env) != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestBootstrapFails(t *testing.T) {
	for what, c := range map[string]struct{ behave, want string }{
		"at once":        {"echo 'E: no such suite' >&2; exit 25", "no such suite"},
		"in the middle":  {"head -c 700 $(dirname $0)/archive; echo 'E: broke off' >&2; exit 25", "broke off"},
		"behind the end": {"cat $(dirname $0)/archive; echo 'E: cleanup' >&2; exit 25", "cleanup"},
		"without a word": {"head -c 600 $(dirname $0)/archive", "EOF"},
	} {
		s := newStore(t)
		fakeMmdebstrap(t, "12.1", c.behave)
		needSubIDs(t)
		if _, err := pulled(t, s, "bootstrap:bookworm", "linux/amd64"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
		s.mustBeEmpty(t)
	}
}

// TestBootstrapKilled: mmdebstrap gets the signal on which it cleans up, also
// when this program is killed.
func TestBootstrapKilled(t *testing.T) {
	for _, signal := range []os.Signal{unix.SIGTERM, unix.SIGKILL} {
		s := newStore(t)
		bin := fakeMmdebstrap(t, "12.1", "trap 'echo cleaned >$(dirname $0)/cleaned; exit 1' TERM; echo $$ >$(dirname $0)/pid; while :; do sleep 0.05; done")
		needSubIDs(t)
		cmd := sbImage(t, "pull", "--platform=linux/amd64", "bootstrap:bookworm")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "mmdebstrap", func() bool { return exists(filepath.Join(bin, "pid")) })
		cmd.Process.Signal(signal)
		if cmd.Wait() == nil {
			t.Errorf("%v: ended with 0", signal)
		}
		waitFor(t, "mmdebstrap's cleaning up", func() bool { return exists(filepath.Join(bin, "cleaned")) })
		if signal == unix.SIGTERM {
			s.mustBeEmpty(t)
		}
	}
}

func TestCanBootstrap(t *testing.T) {
	if hasSubIDs("other:100000:65536\nme:200000:65536\n", "me", "1000") != true ||
		hasSubIDs("1000:200000:65536\n", "me", "1000") != true ||
		hasSubIDs("meme:200000:65536\n1001:1:1\n", "me", "1000") != false {
		t.Error("hasSubIDs")
	}
	t.Setenv("PATH", t.TempDir())
	if err := canBootstrap(); err == nil || !strings.Contains(err.Error(), "mmdebstrap is not installed") {
		t.Errorf("%v", err)
	}
}

func TestCommandTail(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	_, err := output(exec.CommandContext(ctx, "sh", "-c", "seq 1 5000 >&2; exit 3"))
	if err == nil || !strings.HasSuffix(err.Error(), "\n4999\n5000") || len(err.Error()) > 2200 || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%.100v", err)
	}
	if out, err := output(exec.CommandContext(ctx, "sh", "-c", "echo out; echo err >&2")); out != "out\n" || err != nil {
		t.Errorf("the control: %q, %v", out, err)
	}
}
