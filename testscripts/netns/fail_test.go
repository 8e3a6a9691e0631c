package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/testscripts/capture"
	"sb/testscripts/listed"
	"sb/testscripts/world"

	"golang.org/x/sys/unix"
)

// failRules let the guest pour into one server and fetch from others.
var failRules = []string{"pour.example.org:22", "*.wild.example.org"}

// pouring starts a sandbox whose guest pours bytes out and dials all the time.
func pouring(t *testing.T, home string) (*capture.Capture, *whole) {
	t.Helper()
	c := watch(t)
	w := newWhole(t, home, failRules...)
	w.do(`(echo "pour: $(probe pour pour.example.org:22 | tail -1)") &`)
	w.until("bytes", func() bool { return poured(c).Up > 4096 })
	return c, w
}

// dialling has the guest dial all the time, and say what came of it.
func (w *whole) dialling() {
	w.do(`(while :; do echo "dial: $(probe tcp a.wild.example.org:80)"; sleep 0.03; done) &`)
	w.until("connections", func() bool { return strings.Contains(w.out.String(), "dial: connected") })
}

// poured is the flow that the guest pours into.
func poured(c *capture.Capture) capture.Flow {
	flows := c.Flows()
	if i := slices.IndexFunc(flows, func(f capture.Flow) bool { return f.Remote.String() == world.CDN+":22" }); i >= 0 {
		return flows[i]
	}
	return capture.Flow{}
}

// closed checks that between two times no flow began and no byte went out.
func closed(t *testing.T, flows []capture.Flow, from, to time.Time) {
	t.Helper()
	if !from.Before(to) {
		t.Errorf("control: there is no time from %v to %v", from, to)
	}
	for _, f := range flows {
		if f.Began.After(from) && f.Began.Before(to) || f.LastUp.After(from) && f.LastUp.Before(to) {
			t.Errorf("between %v and %v: %s, which began at %v and last sent at %v", from, to, f, f.Began, f.LastUp)
		}
	}
}

// starve takes the memory of a process away: it can get no more than it has.
func starve(t *testing.T, pid int) {
	limit(t, pid, unix.RLIMIT_AS)
	limit(t, pid, unix.RLIMIT_DATA)
}

// TestFailGate: while the gate is gone nothing leaves, whatever the guest tries,
// and what was open is reset; it is started again on the same wire, where
// everything is as before. A capture outside sees what the log lists, to the
// gate's death and from the next one's beginning.
func TestFailGate(t *testing.T) {
	for _, how := range []string{"killed", "stopped", "starved of memory"} {
		t.Run(how, func(t *testing.T) {
			c, w := pouring(t, t.TempDir())
			w.dialling()
			gate := w.pid("sb-gate")
			switch how {
			case "killed":
				syscall.Kill(gate, syscall.SIGKILL)
			case "stopped":
				syscall.Kill(gate, syscall.SIGSTOP)
			case "starved of memory":
				starve(t, gate)
				w.do(`(while :; do for n in $(seq 60); do curl -sS --max-time 20 -o /dev/null http://a.wild.example.org/?size=20000000 & done; wait; done) 2>/dev/null &`)
			}
			from := time.Time{}
			w.until("the gate's end", func() bool {
				if how == "stopped" && from.IsZero() && stopped(gate) {
					from = time.Now()
				}
				return !runs(gate)
			})
			if from.IsZero() {
				from = time.Now()
			}
			w.until("another gate", func() bool { return w.count("gate-proved") == 2 })
			again := w.times("gate-proved")[1]
			w.until("the end of what was open", func() bool { return strings.Contains(w.out.String(), "pour: reset") })
			w.fetches("after.wild.example.org", "after")
			flow := poured(c)
			w.end()
			flows := settled(t, c)
			if how != "killed" || from.Before(again) { // it may be there again before this test has looked
				closed(t, flows, from, again)
			}
			if !flow.RST || flow.FIN || flow.Up == 0 {
				t.Errorf("what was open ended as %s", flow)
			}
			if how != "starved of memory" { // what it had queued for the log is lost there
				for _, wrong := range listed.Compare(flows, w.log()) {
					t.Error(wrong)
				}
			}
			if !strings.Contains(w.errs.String(), "sb-run: warning: sb-gate died (") {
				t.Error("it was not said that the gate died")
			}
		})
	}
}

// stopped says whether every thread of a process is.
func stopped(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		if _, rest, ok := strings.Cut(string(text), ") "); ok && rest[0] != 'T' {
			return false
		}
	}
	return len(tasks) > 0
}

// TestFailGateDescriptors: a gate without descriptors opens nothing, says so, and
// goes on with what is open.
func TestFailGateDescriptors(t *testing.T) {
	c, w := pouring(t, t.TempDir())
	w.dialling()
	gate := w.pid("sb-gate")
	restore := limit(t, gate, unix.RLIMIT_NOFILE)
	w.until("a refusal", func() bool { return strings.Contains(w.out.String(), "dial: refused") })
	from := time.Now()
	up := poured(c).Up
	w.until("ten more refusals", func() bool { return strings.Count(w.out.String(), "dial: refused") > 11 })
	w.until("more bytes on what is open", func() bool { return poured(c).Up > up })
	to := time.Now()
	restore()
	w.fetches("after.wild.example.org", "after")
	w.end()
	flows := settled(t, c)
	closed(t, slices.DeleteFunc(slices.Clone(flows), func(f capture.Flow) bool { return f.Remote.Port() == 22 }), from, to)
	log := w.log()
	for _, wrong := range listed.Compare(flows, log) {
		t.Error(wrong)
	}
	if !slices.ContainsFunc(log, func(l audit.Line) bool { return l.Reason == "descriptors-out" }) {
		t.Errorf("the log has no line that says why")
	}
}

// TestFailFullDisk: with no room for the log nothing new is let out, and with
// room again it is; the log then has no gap.
func TestFailFullDisk(t *testing.T) {
	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(home, unix.MNT_DETACH) })
	c, w := pouring(t, home)
	w.dialling()
	filler := filepath.Join(home, "filler")
	fill(t, filler)
	w.until("a refusal", func() bool { return strings.Contains(w.out.String(), "dial: refused") })
	from := time.Now()
	w.until("ten more refusals", func() bool { return strings.Count(w.out.String(), "dial: refused") > 11 })
	to := time.Now()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.fetches("after.wild.example.org", "after")
	w.end()
	flows, log := settled(t, c), w.log()
	closed(t, slices.DeleteFunc(slices.Clone(flows), func(f capture.Flow) bool { return f.Remote.Port() == 22 }), from, to)
	for _, wrong := range listed.Compare(flows, log) {
		t.Error(wrong)
	}
	if !slices.ContainsFunc(log, func(l audit.Line) bool { return l.Reason == "audit-unavailable" }) {
		t.Errorf("the log has no line that says why")
	}
	if w.count("gate-died") != 0 {
		t.Error("the gate died of it")
	}
}

// fill writes a file, a page at a time, until there is no room for another.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for n := 0; err == nil; n++ {
		if _, err = f.Write(make([]byte, os.Getpagesize())); n > 1<<16 {
			t.Fatal("control: the disk does not fill")
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// TestFailDNS: while the resolver is gone no name leads anywhere new; what is
// open goes on. It is started again, and names are what they were.
func TestFailDNS(t *testing.T) {
	for _, how := range []string{"killed", "stopped", "starved of memory", "starved of descriptors"} {
		t.Run(how, func(t *testing.T) {
			c, w := pouring(t, t.TempDir())
			dns := w.pid("sb-dns")
			died := 1
			from := time.Now()
			switch how {
			case "killed":
				syscall.Kill(dns, syscall.SIGKILL)
			case "stopped":
				syscall.Kill(dns, syscall.SIGSTOP)
			case "starved of memory":
				starve(t, dns)
				w.do(`for n in $(seq 300); do probe dns $n.wild.example.org >/dev/null & done`)
			case "starved of descriptors":
				died = 0
				restore := limit(t, dns, unix.RLIMIT_NOFILE)
				w.do(`echo "new: $(probe tcp new.wild.example.org:80)"`)
				w.until("a refusal", func() bool { return strings.Contains(w.out.String(), "new: refused") })
				closed(t, slices.DeleteFunc(c.Flows(), func(f capture.Flow) bool { return f.Remote.Port() == 22 }), from, time.Now())
				restore()
			}
			if how == "killed" || how == "stopped" {
				w.until("the resolver's end", func() bool { return !runs(dns) })
				w.until("another", func() bool { return w.find("sb-dns") != 0 })
			}
			up := poured(c).Up
			w.until("more bytes on what is open", func() bool { return poured(c).Up > up })
			w.fetches("after.wild.example.org", "after")
			if w.find("sb-gate") == 0 {
				t.Error("the gate is gone too")
			}
			w.end()
			flows, log := settled(t, c), w.log()
			for _, wrong := range listed.Compare(flows, log) {
				t.Error(wrong)
			}
			if n := w.count("dns-died"); n != died && how != "starved of memory" {
				t.Errorf("the log says %d times that it died, not %d", n, died)
			}
		})
	}
}

// TestNoFiles: neither sb-gate nor sb-dns has a file open, the log apart, so that
// a full disk is nothing to them otherwise.
func TestNoFiles(t *testing.T) {
	w := newWhole(t, t.TempDir())
	for tool, want := range map[string][]string{"sb-gate": {"audit.log"}, "sb-dns": nil} {
		var open []string
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.pid(tool)))
		for _, l := range links {
			if to, _ := os.Readlink(l); strings.HasPrefix(to, "/") && to != "/dev/null" && !strings.HasPrefix(to, "/sys/") && !strings.HasPrefix(to, "/proc/") {
				open = append(open, filepath.Base(to))
			}
		}
		if len(links) < 5 || !slices.Equal(open, want) {
			t.Errorf("%s has %q open of %d, want %q", tool, open, len(links), want)
		}
	}
	w.end()
}

// TestFailThrice: a part that dies three times in a minute ends the run, which
// says which and why; nothing is left.
func TestFailThrice(t *testing.T) {
	for _, tool := range []string{"sb-gate", "sb-dns"} {
		t.Run(tool, func(t *testing.T) {
			c, w := pouring(t, t.TempDir())
			for n := 1; n <= 3; n++ {
				pid := w.pid(tool)
				syscall.Kill(pid, syscall.SIGKILL)
				if n < 3 {
					w.until("the word of it", func() bool { return strings.Count(w.errs.String(), tool+" died (") == n })
					w.fetches(fmt.Sprintf("after%d.wild.example.org", n), fmt.Sprint("after", n)) // it does its work again
				}
			}
			if code := w.wait(); code != 125 {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(w.errs.String(), "the machine was stopped: "+tool+" died 3 times within 1m0s; the last time: "+tool+" ended: signal: killed\n") {
				t.Error("it is not said which part died, and how")
			}
			for _, wrong := range listed.Compare(settled(t, c), w.log()) {
				t.Error(wrong)
			}
		})
	}
}

// TestFailVM: a machine that is killed ends the run; one whose sb-vm is stopped
// is no way out, and can be ended. Nothing is left, and all is listed.
func TestFailVM(t *testing.T) {
	for _, c := range []struct {
		how  string
		sig  syscall.Signal
		code int
	}{{"killed", syscall.SIGKILL, 125}, {"stopped", syscall.SIGSTOP, 143}} {
		t.Run(c.how, func(t *testing.T) {
			pcap, w := pouring(t, t.TempDir())
			vm := w.pid("sb-vm")
			syscall.Kill(vm, c.sig)
			if c.sig == syscall.SIGSTOP {
				w.until("a stopped one", func() bool { return stopped(vm) })
				w.cmd.Process.Signal(syscall.SIGTERM)
			}
			if code := w.wait(); code != c.code {
				t.Errorf("exit code %d", code)
			}
			if c.code == 125 && !strings.Contains(w.errs.String(), "sb-run: error: sb-vm ended: signal: killed\n") {
				t.Error("it is not said that the machine ended")
			}
			flow := poured(pcap)
			if !flow.Ended() {
				t.Errorf("what was open ended as %s", flow)
			}
			for _, wrong := range listed.Compare(settled(t, pcap), w.log()) {
				t.Error(wrong)
			}
		})
	}
}
