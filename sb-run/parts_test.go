package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const stays = "echo up; sleep 1000"

// untilFile is a command that waits in the guest for a file.
const untilFile = `echo up; i=0; while ! test -e go && test $((i+=1)) -lt 3000; do sleep 0.02; done; exit 7`

func (s *stage) goOn() { os.WriteFile(filepath.Join(s.work, "go"), nil, 0o600) }

// TestNotReady: nothing starts behind a tool that is not ready, and its own words
// are said, once.
func TestNotReady(t *testing.T) {
	t.Parallel()
	const hint = "sb-run: hint: do this first\n"
	for _, tool := range []string{"sb-gate", "sb-dns", "sb-vm"} {
		for _, c := range []struct {
			does string
			want []string // in stderr
		}{
			{"fails", []string{"sb-run: error: " + tool + ": no such thing\nsb-run: error: really none\n" + hint}},
			{"fails warns:something_odd", []string{"error: " + tool + ": no such thing", hint, tool + ": warning: something odd\n"}},
			{"is-mute", []string{"sb-run: error: " + tool + " ended: exit status 3\n"}},
			{"says:ready_9.9.9", []string{"sb-run: error: " + tool + " (/", ") is version 9.9.9, this is ", "hint: the tools of a release are installed together: make install\n"}},
			{"says:hello", []string{"error: " + tool + " (/", `) said "hello" instead of ready`}},
		} {
			t.Run(tool+" "+c.does, func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.does(tool, c.does)
				begun := time.Now()
				s.run("img", "--", "true").want(t, 125, c.want...)
				if d := time.Since(begun); d > lastWords {
					t.Errorf("it took %v", d)
				}
				if tool != "sb-vm" && len(s.starts("sb-vm")) != 0 {
					t.Error("a machine was started")
				}
				// The control: without the fault it runs.
				s.does(tool, "")
				s.run("img", "--", "true").want(t, 0, "!error")
			})
		}
	}
}

// TestNeverReady: a tool that stays silent is given up.
func TestNeverReady(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ script, want string }{
		{"exec sleep 1000", "sb-x was not ready within 200ms"},
		{"echo 'sb-x: error: stuck' >&2; exec sleep 1000", "sb-x: stuck"},
		{"echo ready 9 >&3; exec 3>&-; exec sleep 1000", "sb-x (/bin/sh) is version 9, this is 0.1.0-dev: the tools of one release belong together"},
		{"exec 3>&-; exec sleep 1000", "sb-x ended: signal: killed"}, // after lastWords
	} {
		c1 := shellChild(t, c.script)
		if err := c1.awaitReady(200 * time.Millisecond); err == nil || strings.Replace(err.Error(), c1.cmd.Path, "/bin/sh", 1) != c.want {
			t.Errorf("%q: %v, want %q", c.script, err, c.want)
		}
		if !c1.ended() {
			t.Errorf("%q: still runs", c.script)
		}
	}
	// The control: one that is slow.
	c := shellChild(t, "sleep 0.1; echo ready 0.1.0-dev >&3; exec 3>&-; exec sleep 1000")
	if err := c.awaitReady(20 * time.Second); err != nil {
		t.Error(err)
	}
	c.kill()
	<-c.done
}

// shellChild is a child that is a shell.
func shellChild(t *testing.T, text string) *child {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := &child{name: "sb-x", ready: r, done: make(chan struct{}), said: &said{name: "sb-x", to: os.Stderr}}
	c.cmd = exec.Command("sh", "-c", text)
	c.cmd.ExtraFiles, c.cmd.Stderr = []*os.File{w}, c.said
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.wait()
	return c
}

// TestPartDies: a gate, resolver or broker that dies, however, is started again; the
// log says so and the run goes on.
func TestPartDies(t *testing.T) {
	t.Parallel()
	meanwhile := map[string]string{"sb-gate": "were reset", "sb-dns": "go on", "sb-broker": "to the hosts of its secrets were reset"}
	for _, tool := range []string{"sb-gate", "sb-dns", "sb-broker"} {
		for _, c := range []struct {
			does string
			sig  syscall.Signal
			how  string
		}{
			{"", syscall.SIGKILL, "signal: killed"},
			{"", syscall.SIGSTOP, "signal: killed"},
			{"", syscall.SIGTERM, "<nil>"},
			{"last-words:the_log_is_full", syscall.SIGTERM, "the log is full"},
			{"is-deaf", 0, "signal: killed"},
			{"closes-ctl", 0, "signal: killed"},
		} {
			t.Run(fmt.Sprint(tool, " ", c.does, " ", c.sig), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				s.does(tool, c.does, "")
				r := s.start(s.cmd("img", "--secret", "anthropic", "--", "sh", "-c", untilFile))
				r.untilUp()
				first := s.starts(tool)[0]
				told := time.Now()
				if c.sig != 0 {
					syscall.Kill(first.PID, c.sig)
				}
				r.untilStarts(tool, 2)
				if d := time.Since(told); c.sig == syscall.SIGSTOP && (d < time.Second || d > 5*time.Second) {
					t.Errorf("it was noticed after %v, want about 2s", d)
				}
				r.until("the word of it", func() bool { return strings.Contains(r.errs.String(), "is started again") })
				s.goOn()
				r.wait().want(t, 7, "sb-run: warning: "+tool+" died ("+c.how+") and is started again; open connections of the sandbox "+meanwhile[tool]+"\n", "!error")
				second := s.starts(tool)[1]
				if n := len(s.starts(tool)); n != 2 {
					t.Errorf("it was started %d times", n)
				}
				for n, what := range first.FDs {
					if same := second.FDs[n]; n > 2 && same != what && !differs(first.Args, n) {
						t.Errorf("descriptor %d was %s and is %s", n, what, same)
					}
				}
				reason := map[string]string{"sb-gate": "gate-died", "sb-dns": "dns-died", "sb-broker": "broker-died"}[tool]
				if log := s.log(); strings.Count(log, " - "+reason+" - by=sb\n") != 1 {
					t.Errorf("audit log:\n%s", log)
				}
			})
		}
	}
}

// differs reports whether the descriptor is one that each start has anew.
func differs(args []string, n int) bool {
	for _, a := range args {
		for _, flag := range []string{"ctl", "ready", "secrets", "ca-out"} {
			if a == fmt.Sprintf("--%s=%d", flag, n) {
				return true
			}
		}
	}
	return false
}

// TestSlowAnswer: a gate that takes a second for each answer is alive.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("sb-gate", "answers-slowly")
	r := s.start(s.cmd("img", "--", "sh", "-c", untilFile))
	r.untilUp()
	r.until("two heartbeats", func() bool { return len(noted[string](s, "sb-gate.asked")) >= 2 })
	s.goOn()
	r.wait().want(t, 7, "!died")
}

// TestStoppedRun: a gate is not blamed for what sb-run did not see while it was
// stopped itself.
func TestStoppedRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.start(s.cmd("img", "--", "sh", "-c", untilFile))
	r.untilUp()
	for range 2 {
		n := len(noted[string](s, "sb-gate.asked"))
		r.until("a heartbeat", func() bool { return len(noted[string](s, "sb-gate.asked")) > n })
		r.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(2500 * time.Millisecond) // longer than a gate may be silent
		r.cmd.Process.Signal(syscall.SIGCONT)
	}
	s.goOn()
	r.wait().want(t, 7, "!died")
}

// TestThreeDeaths: three within a minute end the run with the reason; each has
// its line in the log.
func TestThreeDeaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, does string
		want       []string
	}{
		{"killed", "", []string{"the machine was stopped: sb-gate died 3 times within 1m0s; the last time: sb-gate ended: signal: killed\n", "sb-run: hint: what went before is in its audit log: sb-policy log\n"}},
		{"not ready again", "-\nfails", []string{"the machine was stopped: sb-gate died 3 times within 1m0s; the last time: sb-gate: no such thing\n", "sb-run: hint: do this first\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.does("sb-gate", strings.Split(c.does, "\n")...)
			r := s.start(s.cmd("img", "--", "sh", "-c", stays))
			r.untilUp()
			for n := 1; n <= 3; n++ {
				r.untilStarts("sb-gate", n)
				if c.does == "" || n == 1 {
					kill(t, s.starts("sb-gate")[n-1].PID)
				}
			}
			r.wait().want(t, 125, c.want...)
			if log := s.log(); strings.Count(log, " gate-died ") != 3 {
				t.Errorf("audit log:\n%s", log)
			}
		})
	}
}

// TestDeathWindow: what counts is how many within a minute.
func TestDeathWindow(t *testing.T) {
	for _, c := range []struct {
		at   []time.Duration
		want int
	}{
		{[]time.Duration{0}, 1},
		{[]time.Duration{0, time.Second, 2 * time.Second}, 3},
		{[]time.Duration{0, 59 * time.Second, 59500 * time.Millisecond}, 3},
		{[]time.Duration{0, 30 * time.Second, 61 * time.Second, 92 * time.Second}, 2},
		{[]time.Duration{0, 1 * time.Second, 70 * time.Second, 71 * time.Second, 72 * time.Second}, 3},
		{[]time.Duration{0, 60 * time.Second}, 1},
	} {
		var d deaths
		n := 0
		for _, at := range c.at {
			n = d.add(time.Unix(1000, 0).Add(at))
		}
		if n != c.want {
			t.Errorf("deaths at %v: %d within a minute, want %d", c.at, n, c.want)
		}
	}
}

// TestRotate: a full log is kept as the older generation, and the gate's lines go
// on in the next.
func TestRotate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("sb-gate", "rotates")
	r := s.start(s.cmd("img", "--show-policy-log", "--", "sh", "-c", untilFile))
	r.untilUp()
	r.until("the rotation", func() bool {
		next, _ := filepath.Glob(filepath.Join(s.home, "state", "run", "*", "audit.log"))
		text, err := os.ReadFile(strings.Join(next, ""))
		return err == nil && strings.Contains(string(text), "after.example")
	})
	s.goOn()
	got := r.wait()
	got.want(t, 7, " gate-start ", " after.example ")
	if strings.Index(got.stderr, "gate-start") > strings.Index(got.stderr, "after.example") {
		t.Error("--show-policy-log shows the newer generation first")
	}
	files, _ := filepath.Glob(filepath.Join(s.home, "state", "log", "*"))
	if len(files) != 2 || !strings.HasSuffix(files[1], ".log.1") {
		t.Fatalf("logs kept: %q", files)
	}
	for i, want := range []string{"after.example", "gate-start"} {
		text, _ := os.ReadFile(files[i])
		if strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %q, want a line with %s", files[i], text, want)
		}
	}
}

// TestNothingLeaks: neither parts that are started again nor logs that are
// rotated leave a descriptor open.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("sb-gate", "-", "-", "rotates-often")
	r := s.start(s.cmd("img", "--", "sh", "-c", untilFile))
	r.untilUp()
	r.until("a heartbeat", func() bool { return len(noted[string](s, "sb-gate.asked")) > 0 })
	before := openFDs(t, r.cmd.Process.Pid)
	for n := range 2 {
		for _, tool := range []string{"sb-gate", "sb-dns"} {
			kill(t, s.starts(tool)[n].PID)
			r.untilStarts(tool, n+2)
		}
	}
	r.until("100 rotations", func() bool {
		n := 0
		for _, asked := range noted[string](s, "sb-gate.asked") {
			if asked == "audit" {
				n++
			}
		}
		return n == 100
	})
	r.until("as many descriptors as before", func() bool { return openFDs(t, r.cmd.Process.Pid) <= before })
	s.goOn()
	r.wait().want(t, 7, "!error")
}

func openFDs(t *testing.T, pid int) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// TestDiesBehindReady: a resolver that dies while the gate waits for it is told
// at once, in its words.
func TestDiesBehindReady(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("sb-dns", "dies-when-ready")
	s.does("sb-gate", "is-never-ready")
	begun := time.Now()
	s.run("img", "--", "true").want(t, 125, "sb-run: error: sb-dns: it broke\n")
	if d := time.Since(begun); d > partReadyTime/2 {
		t.Errorf("it took %v", d)
	}
}

// TestLastWords: what a tool reports when it is told to end is passed on, and
// changes nothing.
func TestLastWords(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sb-gate", "sb-dns", "sb-vm"} {
		s := newStage(t)
		s.does(tool, "last-words:the_log_is_full")
		s.run("img", "--", "sh", "-c", "exit 3").want(t, 3, "sb-run: warning: "+tool+": the log is full\n", "!error")
	}
}

// TestStubborn: a tool that does not end when told to is killed.
func TestStubborn(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sb-gate", "sb-dns", "sb-vm"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.does(tool, "is-stubborn")
			s.run("img", "--", "sh", "-c", "exit 3").want(t, 3, "!error")
		})
	}
}

// TestLeavesAProcess: what a tool leaves behind with its stderr open does not
// keep the run from ending.
func TestLeavesAProcess(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sb-gate", "sb-vm"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.does(tool, "leaves-a-process")
			begun := time.Now()
			s.run("img", "--", "sh", "-c", "exit 3").want(t, 3, "!error", "!warning")
			if d := time.Since(begun); d > 8*time.Second {
				t.Errorf("the run took %v", d)
			}
			for _, pid := range noted[int](s, "left") {
				if !runs(pid) {
					t.Error("control: nothing was left")
				}
				kill(t, pid)
			}
		})
	}
}
