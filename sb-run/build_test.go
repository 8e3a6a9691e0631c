package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/session"

	"github.com/creack/pty"
)

// newBuilds is a stage without environments, on which each is built: the scripts of its
// profiles run on this host. On others every environment is there.
func newBuilds(t *testing.T) *stage {
	s := newStage(t)
	s.put("builds", "")
	return s
}

// steps makes the profile mine of these steps.
func (s *stage) steps(scripts ...string) {
	s.t.Helper()
	s.profile("mine", fmt.Sprintf("image = [\"img\"]\ncommand = [\"true\"]\nuser = \"agent\"\ninstall = ['''\n%s\n''']\n", strings.Join(scripts, "\n''', '''\n")))
}

// kept are the environments in the store.
func (s *stage) kept() []string {
	all, _ := filepath.Glob(filepath.Join(s.dir, "env:*"))
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return all
}

// did is how often a step was taken that says so by the word did.
func (s *stage) did() int {
	text, _ := os.ReadFile(filepath.Join(s.dir, "did"))
	return strings.Count(string(text), "\n")
}

// takes is a step that says so.
func (s *stage) takes(name string) string {
	return fmt.Sprintf("# %s\necho taken >>%s/did", name, s.dir)
}

// TestBuild: the steps are taken in order, as root, with nothing of the user's; what
// they made is kept whole, and the next run has it.
func TestBuild(t *testing.T) {
	t.Parallel()
	s := newBuilds(t)
	s.env = append(s.env, "A_SECRET=canary-of-the-user")
	s.config("secrets = [\"mine\"]\n[source]\nmine = \"env:A_SECRET\"\n[[binding]]\nsecret = \"mine\"\nvariable = \"MINE\"\nhosts = [\"keys.example.org\"]\nheader = \"authorization\"\nformat = \"Bearer {}\"\n")
	s.steps(s.takes("the first"), s.takes("the second"))
	s.run("mine", "-w", s.work, "-e", "MINE_TOO=x").want(t, 0, "sb-run: mine is built, once: its environment is kept\n", "  1/2 the first\n", "  2/2 the second\n", "mine is built, in ", "!error")
	commands := noted[session.Command](s, "commands")
	if len(commands) < 5 || commands[0].Prepare == nil || commands[0].Prepare.MakeUser != "agent" || !commands[3].Export {
		t.Fatalf("the guest was told %+v", commands)
	}
	for _, c := range commands[1:3] {
		if c.User != "" && c.User != "root" || len(c.Args) != 3 || c.Env["MINE"]+c.Env["MINE_TOO"] != "" {
			t.Errorf("a step was taken as %q, with %v: %q", c.User, c.Env, c.Args)
		}
	}
	kept := s.kept()
	if len(kept) != 1 || !regexp.MustCompile(`^env:mine-[0-9a-f]{12}$`).MatchString(kept[0]) {
		t.Fatalf("kept: %v", kept)
	}
	if text, _ := os.ReadFile(filepath.Join(s.dir, kept[0])); string(text) != wholeSystem {
		t.Errorf("what is kept is %q", text)
	}
	machines := len(s.starts("sb-vm"))
	if n := len(s.starts("sb-broker")); n != 1 {
		t.Errorf("%d brokers, want that of the run alone", n)
	}
	s.run("mine").want(t, 0, "!built")
	if n := len(s.starts("sb-vm")) - machines; n != 1 || s.did() != 2 {
		t.Errorf("the second run started %d machines, %d steps were taken in all", n, s.did())
	}
	s.run("mine", "--rebuild").want(t, 0, "mine is built, in ")
	if s.did() != 4 || len(s.kept()) != 1 {
		t.Errorf("after --rebuild %d steps were taken, and kept are %v", s.did(), s.kept())
	}
}

// TestBuildFails: a build that fails says in which step and with what, gives the
// step's code, and keeps nothing; mended, it is made from the start.
func TestBuildFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, step string
		vm, image  string // what is not as usual
		code       int
		want       []string
	}{
		{"a step fails", "# it breaks\necho one; echo two >&2; exit 7", "", "", 7,
			[]string{"sb-run:   | one\n", "sb-run:   | two\n", "error: build mine: step 2 of 2 (it breaks): it ended with 7; nothing of it is kept\n", "hint: sb-run agents show mine prints its steps\n"}},
		{"a command of it fails", "# it breaks\nfalse\necho not reached", "", "", 1, []string{"step 2 of 2 (it breaks): it ended with 1", "!not reached"}},
		{"a variable is not set", "# it breaks\necho $NOT_SET_AT_ALL", "", "", 2, []string{"step 2 of 2 (it breaks): it ended with 2", "NOT_SET_AT_ALL"}},
		{"a step is killed", "# it breaks\nkill -9 $$", "", "", 137, []string{"step 2 of 2 (it breaks): it ended with 137"}},
		{"the user cannot be made", "true", "cannot-prepare", "", 125, []string{`make the user agent: the guest says "trust a certificate: the disk is full\x1b[2J"`, "!1/2"}},
		{"it cannot be handed over", "true", "cannot-export", "", 125, []string{`error: build mine: hand over what was made: the guest says "read /odd: input/output error\x1b[2J"; nothing of it is kept`}},
		{"it cannot be kept", "true", "", "add-fails", 125, []string{"error: build mine: keep what was made: add: it is broken; nothing of it is kept\n", "hint: mend it\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newBuilds(t)
			s.steps(s.takes("the first"), c.step)
			s.does("sb-vm", c.vm)
			s.does("sb-image", c.image)
			s.run("mine").want(t, c.code, append(c.want, "!is built, in")...)
			if kept := s.kept(); len(kept) > 0 {
				t.Errorf("kept: %v", kept)
			}
			before := s.did()
			s.steps(s.takes("the first"), "true")
			s.does("sb-vm", "")
			s.does("sb-image", "")
			s.run("mine").want(t, 0, "mine is built, in ", "!error")
			if len(s.kept()) != 1 || s.did() != before+1 {
				t.Errorf("control: kept are %v, %d more steps were taken", s.kept(), s.did()-before)
			}
		})
	}
}

// TestBuildRefused: what a step was refused is named, with the flag that allows it,
// and so is its code.
func TestBuildRefused(t *testing.T) {
	t.Parallel()
	s := newBuilds(t)
	s.put("totals", "3 dns packages.example.net - no-allow-rule\n")
	s.steps("# packages of another\necho 'could not resolve host' >&2; exit 6")
	s.run("mine").want(t, 6, "packages.example.net 3× no-allow-rule  (--allow packages.example.net)", "step 1 of 1 (packages of another): it ended with 6")
	s.put("totals", "")
	s.steps("true")
	s.run("mine").want(t, 0, "!--allow packages", "mine is built, in ")
}

// TestBuildSignals: told to end in a step, the build ends soon, with the signal's
// code, keeps nothing and leaves nothing.
func TestBuildSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := newBuilds(t)
			s.steps(s.takes("it waits") + "; sleep 1000")
			r := s.start(s.cmd("mine"))
			r.until("the step", func() bool { return s.did() == 1 })
			told := time.Now()
			r.cmd.Process.Signal(sig)
			r.wait().want(t, 128+int(sig), "the build of mine was ended: nothing of it is kept", "!error", "!built, in", "!  |")
			if d := time.Since(told); d > 5*time.Second {
				t.Errorf("it took %v", d)
			}
			if kept := s.kept(); len(kept) > 0 {
				t.Errorf("kept: %v", kept)
			}
			s.clean()
			s.steps(s.takes("it does not wait"))
			s.run("mine").want(t, 0, "mine is built, in ")
		})
	}
}

// TestBuildRubbish: on a terminal too, of what a step printed only what is text is
// shown, and no more than a little.
func TestBuildRubbish(t *testing.T) {
	t.Parallel()
	s := newBuilds(t)
	s.steps(`# it prints` + "\n" + `printf 'begins\033]0;title\007\033[2J\000\377\n'; i=0; while [ $i -lt 300 ]; do echo line$i; i=$((i+1)); done; head -c 3000000 /dev/zero; printf '\033[31mends'; exit 3`)
	cmd := s.cmd("mine")
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	screen := make(chan string)
	go func() { text, _ := io.ReadAll(master); screen <- string(text) }()
	r := s.start(cmd)
	terminal.Close()
	if got := r.wait(); got.code != 3 {
		t.Errorf("exit code %d", got.code)
	}
	got := <-screen
	if strings.ContainsAny(got, "\x1b\x00\a") || strings.Contains(got, "\xff") || len(got) > 20_000 {
		t.Errorf("%d bytes came to the terminal: %.3000q", len(got), got)
	}
	if !strings.Contains(got, "line299") || strings.Contains(got, "line200") || !strings.Contains(got, "it ended with 3") {
		t.Errorf("the terminal shows %.3000q", got)
	}
}

// TestBuildTime: a step that does not end is given up.
func TestBuildTime(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	ended := make(chan bool)
	go session.Serve(far, func(c session.Command, sv *session.Served) {
		if c.Args[0] == "quick" {
			sv.Exit(session.Status{})
			return
		}
		for {
			if _, err := sv.Input(); err != nil {
				close(ended)
				return
			}
		}
	})
	h, err := session.NewHost(near)
	if err != nil {
		t.Fatal(err)
	}
	b := &build{limit: 10 * time.Second}
	if err := b.step(context.Background(), h, session.Command{Args: []string{"quick"}}, &tail{}); err != nil {
		t.Errorf("control: %v", err)
	}
	b.limit = 100 * time.Millisecond
	if err := b.step(context.Background(), h, session.Command{Args: []string{"slow"}}, &tail{}); err == nil || err.Error() != "it took more than 100ms" {
		t.Errorf("a step that does not end: %v", err)
	}
	near.Close() // as the end of the build does
	<-ended
}

// TestBuildOnce: of two that want an environment at once one builds it, and the other
// waits and has it.
func TestBuildOnce(t *testing.T) {
	t.Parallel()
	s := newBuilds(t)
	s.steps(s.takes("it waits") + fmt.Sprintf("; while ! test -e %s/go; do sleep 0.02; done", s.dir))
	first := s.start(s.cmd("mine"))
	first.until("the step", func() bool { return s.did() == 1 })
	second := s.start(s.cmd("mine"))
	second.until("its wait", func() bool {
		return strings.Contains(second.errs.String(), "another sb-run builds mine: waiting for it\n")
	})
	third := s.start(s.cmd("mine"))
	third.until("its wait", func() bool { return strings.Contains(third.errs.String(), "waiting for it") })
	third.cmd.Process.Signal(syscall.SIGINT) // who waits can be told to end, and the build goes on
	third.wait().want(t, 130, "!error")
	s.put("go", "")
	first.wait().want(t, 0, "mine is built, in ")
	second.wait().want(t, 0, "!is built, in")
	if s.did() != 1 || len(s.kept()) != 1 {
		t.Errorf("%d steps were taken, and kept are %v", s.did(), s.kept())
	}
}

// TestBuildAfterFailure: who waited for a build that failed makes it himself.
func TestBuildAfterFailure(t *testing.T) {
	t.Parallel()
	s := newBuilds(t)
	s.steps(s.takes("it waits") + fmt.Sprintf("; while ! test -e %[1]s/go; do sleep 0.02; done; rm %[1]s/fails 2>/dev/null && exit 4 || true", s.dir))
	s.put("fails", "")
	first := s.start(s.cmd("mine"))
	first.until("the step", func() bool { return s.did() == 1 })
	second := s.start(s.cmd("mine"))
	second.until("its wait", func() bool { return strings.Contains(second.errs.String(), "waiting for it") })
	s.put("go", "")
	first.wait().want(t, 4, "it ended with 4")
	second.wait().want(t, 0, "mine is built, in ")
}

// TestBuildName: whatever an environment is made of is in what it is called, and
// nothing else is.
func TestBuildName(t *testing.T) {
	t.Parallel()
	name := func(digest, user string, steps ...string) string {
		b, err := newBuild(nil, &profile.Profile{Name: "mine", User: user, Install: steps}, &image{Digest: digest}, &manifest.Manifest{})
		if err != nil {
			t.Fatal(err)
		}
		return b.ref
	}
	base := name("sha256:1", "agent", "a", "b")
	for what, other := range map[string]string{
		"another image":      name("sha256:2", "agent", "a", "b"),
		"another user":       name("sha256:1", "other", "a", "b"),
		"no user":            name("sha256:1", "", "a", "b"),
		"another step":       name("sha256:1", "agent", "a", "c"),
		"one more":           name("sha256:1", "agent", "a", "b", "c"),
		"one less":           name("sha256:1", "agent", "a"),
		"another order":      name("sha256:1", "agent", "b", "a"),
		"one step of both":   name("sha256:1", "agent", "ab"),
		"a newline between":  name("sha256:1", "agent", "a\nb"),
		"a comma between":    name("sha256:1", "agent", `a","b`),
		"parted otherwise":   name("sha256:1", "agent", "", "ab"),
		"the user as a step": name("sha256:1", "", "agent", "a", "b"),
	} {
		if other == base || !strings.HasPrefix(other, "env:mine-") {
			t.Errorf("%s: it is called %s, as before %s", what, other, base)
		}
	}
	if again := name("sha256:1", "agent", "a", "b"); again != base {
		t.Errorf("control: the same is called %s, then %s", base, again)
	}
	p := &profile.Profile{Name: "mine", User: "agent", Install: []string{"a", "b"}, About: "x", Command: []string{"y"}, Env: map[string]string{"a": "b"}}
	if b, _ := newBuild(nil, p, &image{Digest: "sha256:1", Ref: "z"}, &manifest.Manifest{Name: "n"}); b.ref != base {
		t.Errorf("with another command and variable it is called %s, not %s", b.ref, base)
	}
}

// TestBuildImage: with --image an environment is made of that image, beside the
// other.
func TestBuildImage(t *testing.T) {
	t.Parallel()
	s := newBuilds(t)
	s.put("other.json", `{"ref":"other","digest":"sha256:11","config":{"Env":["PATH=/bin:/usr/bin","FROM=other"]}}`)
	s.steps(s.takes("it"))
	s.run("mine").want(t, 0, "mine is built, in ")
	s.run("mine", "--image", "other").want(t, 0, "mine is built, in ")
	s.run("mine", "--image", "other").want(t, 0, "!built")
	s.run("mine").want(t, 0, "!built")
	if len(s.kept()) != 2 || s.did() != 2 {
		t.Errorf("kept: %v; %d steps", s.kept(), s.did())
	}
	var likes []string
	for _, st := range s.starts("sb-image") {
		if st.Args[0] == "add" {
			likes = append(likes, st.Args[1])
		}
	}
	if !slices.Equal(likes, []string{"--like=sha256:00", "--like=sha256:11"}) {
		t.Errorf("they were made of %v", likes)
	}
}
