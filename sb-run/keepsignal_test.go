package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestStateAfterSignal: a signal ends the command first, and what that leaves is kept;
// where the guest does not hand it over in time, or another signal comes, the state is
// as it was, and that is said. The exit code is the signal's.
func TestStateAfterSignal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		vm     string
		again  bool // a second signal
		kept   bool
		want   string
	}{
		"it ends itself":            {script: `trap 'cp "$D/last" "$D/packed"; exit 0' TERM; echo up; while :; do sleep 0.02; done`, kept: true, want: "!warning"},
		"it does not want to end":   {script: `trap '' TERM; cp "$D/last" "$D/packed"; echo up; while :; do sleep 0.02; done`, kept: true, want: "!warning"},
		"the guest does not answer": {script: stays, vm: "never-packs", want: "the state of mine is not kept, and is as it was before: after the signal it took more than 10s"},
		"another signal":            {script: stays, vm: "never-packs", again: true, want: "the state of mine is not kept, and is as it was before: another signal came"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.profile("mine", "image = [\"img\"]\n[state]\npaths = [\"~/.a\"]\n")
			s.pack(".a/x", "last")
			os.Rename(s.dir+"/packed", s.dir+"/last")
			s.pack(".a/x", "first")
			s.run("mine", "--", "true").want(t, 0, "!warning")
			s.does("sb-vm", c.vm)
			r := s.start(s.cmd("mine", "-e", "D="+s.dir, "--", "sh", "-c", c.script))
			r.untilUp()
			told := time.Now()
			r.cmd.Process.Signal(syscall.SIGTERM)
			if c.again {
				r.until("the question", func() bool { return len(noted[string](s, "asked")) > 0 })
				time.Sleep(sameSignal) // two at once are one
				r.cmd.Process.Signal(syscall.SIGTERM)
			}
			r.wait().want(t, 143, "!sb-run: error", c.want)
			if d := time.Since(told); d > endTime+3*time.Second || c.again && d > endTime/2 {
				t.Errorf("it took %v", d)
			}
			s.does("sb-vm", "")
			s.brought()
			s.run("mine", "--", "true").want(t, 0)
			if got, want := s.brought(), map[bool]string{false: ".a/x=first", true: ".a/x=last"}[c.kept]; got != want {
				t.Errorf("the next one is brought %q, want %q", got, want)
			}
		})
	}
}
