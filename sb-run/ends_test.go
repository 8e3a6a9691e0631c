package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stages are where a run can be when it is told to end.
var stages = []struct {
	name   string
	tool   string // waits there
	does   string
	remove string // not there
}{
	{"while an image is fetched", "sb-image", "pull-waits", "image"},
	{"while a kernel is fetched", "sb-image", "kernel-install-waits", "kernel"},
	{"while the disk is made", "sb-image", "disk-waits", ""},
	{"while the resolver starts", "sb-dns", "is-never-ready", ""},
	{"while the gate starts", "sb-gate", "is-never-ready", ""},
	{"while the machine boots", "sb-vm", "is-never-ready", ""},
	{"while the guest is silent", "sb-vm", "is-silent", ""},
	{"while the command runs", "", "", ""},
}

// at starts a run that stays at a stage.
func (s *stage) at(n int, more string) *running {
	s.t.Helper()
	at := stages[n]
	if at.remove != "" {
		os.Remove(filepath.Join(s.dir, at.remove))
	}
	if at.tool != "" {
		s.does(at.tool, at.does+" "+more)
	}
	r := s.start(s.cmd("img", "--", "sh", "-c", stays))
	switch at.tool {
	case "":
		r.untilUp()
	case "sb-image":
		r.until("the stage", func() bool {
			return slices.ContainsFunc(s.starts("sb-image"), func(st started) bool { return strings.HasPrefix(at.does, st.Args[0]) })
		})
		// It must have set its signals; what it says first goes to people.
		if at.remove != "" {
			r.until("its word", func() bool { return strings.Contains(r.errs.String(), "sb-image: fetching\n") })
		}
	default:
		r.untilStarts(at.tool, 1)
	}
	return r
}

// TestSignals: told to end at any stage, the run ends soon, with the code that a
// shell gives for the signal, without complaint and without leaving anything.
func TestSignals(t *testing.T) {
	t.Parallel()
	for n, at := range stages {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			t.Run(fmt.Sprint(at.name, " ", sig), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				r := s.at(n, "")
				told := time.Now()
				r.cmd.Process.Signal(sig)
				r.wait().want(t, 128+int(sig), "!sb-run: error", "!warning", "!failed")
				if d := time.Since(told); d > 5*time.Second {
					t.Errorf("it took %v", d)
				}
				if at.remove != "" && len(noted[string](s, "undone")) != 1 {
					t.Error("sb-image did not undo what it had begun")
				}
			})
		}
	}
}

// TestSignalTwice: told so again, it waits for nothing.
func TestSignalTwice(t *testing.T) {
	t.Parallel()
	for n, at := range stages {
		if at.does == "disk-waits" {
			continue // as the other two of sb-image
		}
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			for _, tool := range []string{"sb-gate", "sb-dns", "sb-vm"} {
				s.does(tool, "is-stubborn")
			}
			r := s.at(n, "is-stubborn undoes-slowly")
			r.cmd.Process.Signal(syscall.SIGTERM)
			time.Sleep(sameSignal + 100*time.Millisecond) // two at once are one
			select {
			case <-r.done:
				t.Error("control: it had ended already")
			default:
			}
			told := time.Now()
			r.cmd.Process.Signal(syscall.SIGINT)
			r.wait().want(t, 143, "!sb-run: error", "!warning")
			if d := time.Since(told); d > 5*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// TestSignalAtTheEnd: a signal while the machine ends hurries it; the exit code
// stays the command's. Two that come at once, as at the end of a terminal, are
// one.
func TestSignalAtTheEnd(t *testing.T) {
	t.Parallel()
	t.Run("hurries", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.does("sb-vm", "is-stubborn")
		r := s.start(s.cmd("img", "--", "sh", "-c", "echo up; exit 7"))
		r.untilUp()
		r.until("the end of the command", func() bool { return len(noted[string](s, "sb-vm.told")) == 1 })
		told := time.Now()
		r.cmd.Process.Signal(syscall.SIGTERM)
		r.wait().want(t, 7, "!error")
		if d := time.Since(told); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
	})
	t.Run("two at once", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.does("sb-vm", "is-stubborn")
		r := s.start(s.cmd("img", "--", "sh", "-c", stays))
		r.untilUp()
		told := time.Now()
		r.cmd.Process.Signal(syscall.SIGHUP)
		r.until("the machine is told", func() bool { return len(noted[string](s, "sb-vm.told")) == 1 })
		r.cmd.Process.Signal(syscall.SIGHUP)
		r.wait().want(t, 129, "!error")
		if d := time.Since(told); d < vmEndTime {
			t.Errorf("the machine had %v to end, not %v", d, vmEndTime)
		}
	})
}

// TestIgnoredSignal: what was ignored when sb-run was called, by nohup or for a
// job in the background, does not end it.
func TestIgnoredSignal(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cmd := s.cmd()
	cmd.Args = []string{"sh", "-c", `trap "" HUP INT; exec "$0" img -- sh -c "` + untilFile + `"`, cmd.Path}
	cmd.Path = "/bin/sh"
	r := s.start(cmd)
	r.untilUp()
	r.cmd.Process.Signal(syscall.SIGHUP)
	r.cmd.Process.Signal(syscall.SIGINT)
	n := len(noted[string](s, "sb-gate.asked"))
	r.until("two heartbeats", func() bool { return len(noted[string](s, "sb-gate.asked")) > n+1 })
	// The control: one that is not ignored.
	r.cmd.Process.Signal(syscall.SIGTERM)
	r.wait().want(t, 143)
}

// TestKilledRun: sb-run killed takes everything with it, by the leash; what it
// leaves of its directory the next run clears away, but for the log.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	for n, at := range stages {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			r := s.at(n, "")
			r.cmd.Process.Kill()
			r.wait()
			s.gone()
			left, _ := filepath.Glob(filepath.Join(s.home, "state", "run", "*"))
			if at.remove == "" && len(left) != 1 {
				t.Errorf("control: left %q", left)
			}
			for _, tool := range []string{"sb-image", "sb-gate", "sb-dns", "sb-vm"} {
				s.does(tool, "")
			}
			s.run("img", "--", "true").want(t, 0)
			logs, _ := filepath.Glob(filepath.Join(s.home, "state", "log", "*"))
			want := 1
			if at.tool == "sb-vm" || at.tool == "" {
				want = 2
			}
			if len(logs) != want && at.tool != "sb-dns" && at.tool != "sb-gate" {
				t.Errorf("logs kept: %q, want %d", logs, want)
			}
		})
	}
}

// TestKilledStubborn: the leash ends a tool that no signal does.
func TestKilledStubborn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, tool := range []string{"sb-gate", "sb-dns", "sb-vm"} {
		s.does(tool, "is-stubborn")
	}
	r := s.start(s.cmd("img", "--", "sh", "-c", stays))
	r.untilUp()
	r.cmd.Process.Kill()
	r.wait()
	s.gone()
	for _, tool := range []string{"sb-gate", "sb-dns", "sb-vm"} {
		s.does(tool, "")
	}
	s.run("img", "--", "true").want(t, 0)
}

// TestMachineEnds: the end of the machine ends the run with its reason, said once.
func TestMachineEnds(t *testing.T) {
	t.Parallel()
	died := []string{"sb-run: error: sb-vm: the machine ended: QEMU: signal: killed\n", `sb-run: hint: console: 59 \x1b[31m` + "\n", "hint: console: 20 ", "!console: 19 ", "!guest stream"}
	for _, c := range []struct {
		name, does string
		command    []string
		code       int
		want       []string
	}{
		{"dies before it is ready", "fails", []string{"true"}, 125, []string{"sb-run: error: sb-vm: no such thing\n", "!guest stream"}},
		{"dies when it is ready", "dies-when-ready", []string{"true"}, 125, died},
		{"dies while the command runs", "", []string{"@die"}, 125, died},
		{"powers off", "", []string{"@poweroff"}, 125, []string{"sb-run: error: the machine ended before its command: it was powered off or restarted from inside, or its kernel gave up\n", "sb-run: hint: ", "!guest stream"}},
		{"dies behind the command", "", []string{"@die-after-exit"}, 7, []string{"!error"}},
		{"breaks the guest stream", "", []string{"@garbage"}, 125, []string{"sb-run: error: the guest stream ended before the command: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.does("sb-vm", c.does)
			begun := time.Now()
			s.run(append([]string{"img", "--"}, c.command...)...).want(t, c.code, c.want...)
			if d := time.Since(begun); d > vmEndTime-time.Second && c.command[0] != "@garbage" {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// TestExitCodes: the command's own, as a shell gives them.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, c := range []struct {
		command []string
		code    int
		want    string
	}{
		{[]string{"true"}, 0, "!error"},
		{[]string{"sh", "-c", "exit 1"}, 1, "!error"},
		{[]string{"sh", "-c", "exit 2"}, 2, "!error"},
		{[]string{"sh", "-c", "exit 125"}, 125, "!error"},
		{[]string{"sh", "-c", "exit 255"}, 255, "!error"},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143, "!error"},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137, "!error"},
		{[]string{"no-such-command"}, 127, "sb-run: error: in the guest: "},
		{[]string{"/etc/passwd"}, 126, "sb-run: error: in the guest: "},
		{[]string{"@lies"}, 126, `sb-run: error: in the guest: no\x0ahint: --allow evil.example\x1b[2Jxxx`},
	} {
		s.run(append([]string{"img", "--"}, c.command...)...).want(t, c.code, c.want)
	}
}

// TestLogNotKept: an audit log that cannot be kept is said, left where it is, and
// kept by a later run. The command's own failure stays the exit code.
func TestLogNotKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		exit string
		code int
		rank string
	}{{"0", 125, "error"}, {"7", 7, "warning"}} {
		s := newStage(t)
		r := s.start(s.cmd("img", "--", "sh", "-c", strings.Replace(untilFile, "exit 7", "exit "+c.exit, 1)))
		r.untilUp()
		logs := filepath.Join(s.home, "state", "log")
		if err := os.Remove(logs); err != nil {
			t.Fatal(err)
		}
		s.goOn()
		r.wait().want(t, c.code, "sb-run: "+c.rank+": keep the audit log: ")
		if left, _ := filepath.Glob(filepath.Join(s.home, "state", "run", "*", "audit.log")); len(left) != 1 {
			t.Errorf("the log is not where it was: %q", left)
		}
		s.run("img", "--", "true").want(t, 0)
		if kept, _ := os.ReadDir(logs); len(kept) != 2 {
			t.Errorf("%d logs are kept, want 2", len(kept))
		}
	}
}

// TestMissingTool: a tool that is not there is named, with what to do.
func TestMissingTool(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sb-image", "sb-dns", "sb-gate", "sb-vm"} {
		s := newStage(t)
		if err := os.Remove(filepath.Join(s.dir, tool)); err != nil {
			t.Fatal(err)
		}
		if p, err := exec.LookPath(tool); err == nil {
			t.Fatalf("%s is on the PATH: %s", tool, p)
		}
		s.run("img", "--", "true").want(t, 125, "find "+tool+": ", "hint: the tools of a release are installed together: make install\n")
	}
}
