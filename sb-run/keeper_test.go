package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/session"
)

// TestBrokerDies: the broker and its keeper are started again together, on a wire of
// their own and the gate's old one; the guest is told of the new certificate. So they
// are when one is stopped or stuck, within a few seconds.
func TestBrokerDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		victim, does string
		sig          syscall.Signal
	}{
		{"sb-broker", "", syscall.SIGKILL}, {"keeper", "", syscall.SIGKILL}, {"keeper", "", syscall.SIGSTOP},
		{"keeper", "is-deaf", 0}, {"keeper", "closes-ctl", 0},
	} {
		t.Run(fmt.Sprint(c.victim, " ", c.does, " ", c.sig), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.does(c.victim, c.does, "")
			r := s.start(s.cmd("img", "--secret", "anthropic", "--", "sh", "-c", untilFile))
			r.untilUp()
			told := time.Now()
			syscall.Kill(s.starts(c.victim)[0].PID, c.sig)
			r.untilStarts("sb-broker", 2)
			if d := time.Since(told); d > 5*time.Second {
				t.Errorf("it was noticed after %v, want about 2s", d)
			}
			certificates := func() (n int) {
				for _, c := range noted[session.Command](s, "commands") {
					if c.Prepare != nil {
						n++
					}
				}
				return n
			}
			r.until("the new certificate", func() bool { return certificates() == 2 })
			s.goOn()
			r.wait().want(t, 7, "sb-run: warning: sb-broker died (signal: killed) and is started again; open connections of the sandbox to the hosts of its secrets were reset\n")
			if why := "sb-broker keep ended: signal: killed"; c.victim == "keeper" && !strings.Contains(r.errs.String(), why) {
				t.Errorf("it does not say %q", why)
			}
			if len(s.starts("keeper")) != 2 || len(s.starts("sb-gate")) != 1 {
				t.Errorf("%d keepers, %d gates", len(s.starts("keeper")), len(s.starts("sb-gate")))
			}
			if n := strings.Count(s.log(), " note run "); n != 2 || !strings.Contains(s.log(), " broker-died - by=sb\n") { // gate-start, broker-died
				t.Errorf("log:\n%s", s.log())
			}
		})
	}
}

// TestBrokerKeepsDying: one that cannot be kept alive ends the run.
func TestBrokerKeepsDying(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("sb-broker", "", "dies-when-ready")
	r := s.start(s.cmd("img", "--secret", "anthropic", "--", "sh", "-c", stays))
	r.untilUp()
	kill(t, s.starts("sb-broker")[0].PID)
	r.wait().want(t, 125, "the machine was stopped: sb-broker died 3 times within 1m0s; the last time: sb-broker: it broke")
}

// TestBrokerCertificate: nothing but one certificate goes on to the guest.
func TestBrokerCertificate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.does("sb-broker", "leaks-a-key", "")
	got := s.run("img", "--secret", "anthropic", "--", "true")
	got.want(t, 0, "take the certificate of sb-broker: it is not one certificate and nothing else", "sb-broker died")
	for _, c := range noted[session.Command](s, "commands") {
		if c.Prepare != nil && strings.Contains(c.Prepare.Trust, "KEY") {
			t.Errorf("the guest was given %q", c.Prepare.Trust)
		}
	}
	s.does("sb-broker", "")
	s.does("sb-vm", "cannot-prepare")
	s.run("img", "--secret", "anthropic", "--", "true").want(t, 125, `prepare the guest: it says "trust a certificate: the disk is full\x1b[2J"`)
}

// TestKeeperPath: the keeper, and what it starts, finds no program where the guest
// could put one.
func TestKeeperPath(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Mkdir(s.work+"/bin", 0o700), os.Symlink(s.work+"/bin", link)); err != nil {
		t.Fatal(err)
	}
	for i, v := range s.env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			s.env[i] = "PATH=" + s.work + "/bin:bin::.:" + link + ":" + path
		}
	}
	s.run("img", "--secret", "anthropic", "-w="+s.work, "--", "true").want(t, 0)
	if got := noted[string](s, "keeper-path"); len(got) != 1 || got[0] != os.Getenv("PATH") {
		t.Errorf("it looks in %q, want %q", got, os.Getenv("PATH"))
	}
}

// TestTriedInShare: a secret that a profile tries is read no earlier than it is known
// that the guest can change nothing of how, and finds no program where the guest could
// put one.
func TestTriedInShare(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	agents := filepath.Join(s.home, "config", "agents")
	if err := errors.Join(os.MkdirAll(agents, 0o700), os.Mkdir(s.work+"/bin", 0o700), os.WriteFile(s.work+"/tool", []byte("#!/bin/sh\n"), 0o700),
		os.WriteFile(agents+"/mine.toml", []byte("image = [\"img\"]\ntry-secrets = [\"anthropic\"]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for i, v := range s.env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			s.env[i] = "PATH=" + s.work + "/bin:.:" + path
		}
	}
	for _, table := range []string{"[source]\nanthropic = ", "[store]\nkey = "} {
		s.config(table + "\"cmd:" + s.work + "/tool\"\n")
		s.run("mine", "--", "true").want(t, 125, "which is shared with the guest")
	}
	if got := s.starts("keeper"); len(got) != 0 {
		t.Errorf("the keeper was asked: %q", got[0].Args)
	}
	s.config("")
	s.run("mine", "--", "true").want(t, 0)
	got := noted[string](s, "keeper-path")
	if len(got) != 2 || got[0] != os.Getenv("PATH") || got[1] != os.Getenv("PATH") {
		t.Errorf("it looks in %q, want %q", got, os.Getenv("PATH"))
	}
}

// TestSecretFromDescriptor: a descriptor of the user's reaches the keeper, and
// nobody else.
func TestSecretFromDescriptor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.config("[source]\nanthropic = \"fd:5\"\n")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.Close()
	cmd := s.cmd("img", "--secret", "anthropic", "--", "true")
	cmd.ExtraFiles = []*os.File{r, r, r}
	s.start(cmd).wait().want(t, 0)
	st, err := os.Readlink(fmt.Sprint("/proc/self/fd/", r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	has := func(tool string) bool {
		return slices.Contains(slices.Collect(maps.Values(s.starts(tool)[0].FDs)), st)
	}
	if !has("keeper") || has("sb-broker") || has("sb-gate") || has("sb-vm") {
		t.Errorf("the keeper has it: %v, the broker: %v, the gate: %v", has("keeper"), has("sb-broker"), has("sb-gate"))
	}
	if a := strings.Join(s.starts("keeper")[0].Args, " "); !strings.Contains(a, "--fd=5=") {
		t.Errorf("the keeper's arguments: %s", a)
	}
}
