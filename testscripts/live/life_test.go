package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/testscripts/world"
)

const waiting = `echo up; sleep 1000`

// pidOf is the process of a tool in the sandbox.
func (s *started) pidOf(tool string) int {
	s.t.Helper()
	for _, p := range s.processes() {
		f := strings.Fields(p)
		if len(f) > 1 && filepath.Base(f[1]) == tool {
			pid, _ := strconv.Atoi(f[0])
			return pid
		}
	}
	s.t.Fatalf("no %s among %q", tool, s.processes())
	return 0
}

type process struct {
	pid, ppid int
	args      string
}

// allProcesses lists those of the host.
func (s *started) allProcesses() (all []process) {
	out, _ := exec.Command("ps", "-eo", "pid,ppid,args").Output()
	for l := range strings.Lines(string(out)) {
		var p process
		if n, _ := fmt.Sscan(l, &p.pid, &p.ppid); n == 2 {
			p.args = l
			all = append(all, p)
		}
	}
	return all
}

// TestEndBySignal: sb-run told to end ends everything, with the exit code that
// a shell gives for the signal.
func TestEndBySignal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sig  syscall.Signal
		want int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}} {
		t.Run(c.sig.String(), func(t *testing.T) {
			t.Parallel()
			claim(t, "signal")
			s := start(t, box{script: waiting})
			if len(s.processes()) < 4 {
				t.Errorf("control: only %q run", s.processes())
			}
			s.cmd.Process.Signal(c.sig)
			if code := s.wait(15 * time.Second); code != c.want {
				t.Errorf("exit code %d, want %d", code, c.want)
			}
			s.gone(t)
			leftNothing(t, s.state)
		})
	}
}

// TestKilledRun: sb-run killed with SIGKILL takes everything with it; what it
// leaves of its directory holds no disk, and the next run clears it away.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	claim(t, "killed")
	s := start(t, box{script: waiting})
	s.cmd.Process.Kill()
	s.wait(5 * time.Second)
	s.gone(t)
	left, _ := filepath.Glob(filepath.Join(s.state, "run", "*", "*"))
	for _, f := range left {
		if st, err := os.Stat(f); err == nil && st.Size() > 1<<20 {
			t.Errorf("%s was left, %d bytes", f, st.Size())
		}
	}
	if len(left) == 0 {
		t.Error("control: nothing was left to clear away")
	}
	again := exec.Command(sbRun(), imageRef, "--cpus=1", "--memory=512m", "--", "true")
	again.Env = s.cmd.Env
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("the next run: %v\n%s", err, out)
	}
	leftNothing(t, s.state)
	if logs, _ := filepath.Glob(filepath.Join(s.state, "log", "*.log")); len(logs) != 2 {
		t.Errorf("audit logs kept: %v, want that of the killed run and the next one's", logs)
	}
}

// fetching is a script that fetches a page for each line on its stdin.
const fetching = `echo up
while read n; do curl -sS --max-time 10 http://allowed.example.org/$n || echo "failed $n"; done`

// TestPartDies: a dead or stuck gate or resolver is started again on the same
// wire: the guest lives, its addresses stay good, nothing passes meanwhile.
func TestPartDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool string
		sig  syscall.Signal
		note string
	}{
		{"sb-gate", syscall.SIGKILL, "gate-died"},
		{"sb-gate", syscall.SIGSTOP, "gate-died"},
		{"sb-dns", syscall.SIGKILL, "dns-died"},
	} {
		t.Run(c.tool+" "+c.sig.String(), func(t *testing.T) {
			t.Parallel()
			claim(t, "fail-closed", "G29")
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			s := start(t, box{flags: []string{"--allow", "allowed.example.org"}, stdin: r, script: fetching})
			fmt.Fprintln(w, "before")
			s.until("the first page", func() bool { return strings.Contains(s.out.String(), "GET /before") })
			old := s.pidOf(c.tool)
			syscall.Kill(old, c.sig)
			s.until("the part is started again", func() bool { return strings.Contains(s.errs.String(), c.tool+" died") })
			s.until("a new process", func() bool { p := s.processes(); return len(p) > 0 && !hasPid(p, old) && countTool(p, c.tool) == 1 })
			fmt.Fprintln(w, "after")
			s.until("the page after", func() bool { return strings.Contains(s.out.String(), "GET /after") })
			w.Close()
			r.Close()
			if code := s.wait(30 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			s.gone(t)
			res := &result{t: t, audit: readAudit(t, s.state)}
			res.logs(t, `note run \S+ - `+c.note+` - by=sb`)
			res.logs(t, `close tcp allowed\.example\.org 45\.67\.0\.10:80 done `)
		})
	}
}

// TestBrokerDies: a dead or stuck broker is started again. What it was answering ends
// with an error, in the log too, and a request made meanwhile waits or fails; one that
// is answered was given the value.
func TestBrokerDies(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			claim(t, "fail-closed")
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			s := start(t, box{config: secretConfig(), env: []string{"SB_TEST_SECRET=" + aSecret}, stdin: r, script: `echo up
{ curl -sv --http1.1 -H "Content-Length: 100" -d x https://keys.example.org/seen 2>/tmp/held; echo "the held one: $?"; } &
until grep -q '^> POST' /tmp/held; do sleep 0.1; done; echo begun
while read n; do
  until curl -sS --max-time 40 -H "Authorization: Bearer $MINE" https://keys.example.org/seen/$n; do sleep 0.2; done; echo "done $n"
done`})
			s.until("a request in the middle", func() bool { return strings.Contains(s.out.String(), "begun") })
			fmt.Fprintln(w, "before")
			s.until("another", func() bool { return strings.Contains(s.out.String(), "done before") })
			old := s.brokerPid()
			syscall.Kill(old, sig)
			told := time.Now()
			fmt.Fprintln(w, "after")
			s.until("the end of the one in the middle", func() bool { return strings.Contains(s.out.String(), "the held one: ") })
			if d := time.Since(told); d > 15*time.Second {
				t.Errorf("it ended after %v", d)
			}
			s.until("the one after", func() bool { return strings.Contains(s.out.String(), "done after") })
			if now := s.brokerPid(); now == old {
				t.Error("the broker is the old one")
			}
			w.Close()
			r.Close()
			if code := s.wait(30 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			s.gone(t)
			value := "authorization " + world.Digest("Bearer "+aSecret) + "\n"
			if out := s.out.String(); strings.Count(out, value) != 2 || strings.Count(out, "authorization ") != 2 || strings.Contains(out, "the held one: 0") {
				t.Errorf("the guest saw\n%s", out)
			}
			res := &result{t: t, audit: readAudit(t, s.state)}
			res.logs(t, `note run \S+ - broker-died - by=sb`)
			res.logs(t, `deny broker keys\.example\.org \S+ broker-died `)
			res.logs(t, `close tcp keys\.example\.org \S+ broker-died `)
		})
	}
}

// brokerPid is the process of the broker, which has its keeper's name.
func (s *started) brokerPid() int {
	s.t.Helper()
	for _, p := range s.processes() {
		if f := strings.Fields(p); len(f) > 2 && filepath.Base(f[1]) == "sb-broker" && f[2] != "keep" {
			pid, _ := strconv.Atoi(f[0])
			return pid
		}
	}
	s.t.Fatalf("no broker among %q", s.processes())
	return 0
}

func hasPid(processes []string, pid int) bool {
	for _, p := range processes {
		if strings.HasPrefix(p, strconv.Itoa(pid)+" ") {
			return true
		}
	}
	return false
}

func countTool(processes []string, tool string) (n int) {
	for _, p := range processes {
		if f := strings.Fields(p); len(f) > 1 && filepath.Base(f[1]) == tool {
			n++
		}
	}
	return n
}

// TestThreeDeaths: a part that keeps dying ends the run, which says which and why.
func TestThreeDeaths(t *testing.T) {
	t.Parallel()
	claim(t, "three-deaths")
	s := start(t, box{script: waiting})
	for n := 1; n <= 3; n++ {
		s.until("a gate that runs", func() bool { return countTool(s.processes(), "sb-gate") == 1 })
		syscall.Kill(s.pidOf("sb-gate"), syscall.SIGKILL)
		if n < 3 {
			s.until("it is started again", func() bool { return strings.Count(s.errs.String(), "sb-gate died") == n })
		}
	}
	if code := s.wait(20 * time.Second); code != 125 {
		t.Errorf("exit code %d, want 125", code)
	}
	if !strings.Contains(s.errs.String(), "the machine was stopped: sb-gate died 3 times") {
		t.Errorf("stderr does not say which part died:\n%s", s.errs)
	}
	s.gone(t)
}

// TestMachineDies: a machine that is killed ends the run with the reason.
func TestMachineDies(t *testing.T) {
	t.Parallel()
	claim(t, "machine-dies")
	s := start(t, box{script: waiting})
	syscall.Kill(s.pidOf("qemu-system-x86_64"), syscall.SIGKILL)
	if code := s.wait(20 * time.Second); code != 125 {
		t.Errorf("exit code %d, want 125", code)
	}
	if !strings.Contains(s.errs.String(), "sb-vm: the machine ended: QEMU") {
		t.Errorf("stderr:\n%s", s.errs)
	}
	s.gone(t)
}

// TestGuestPowersOff: a guest that powers itself off ends the run.
func TestGuestPowersOff(t *testing.T) {
	t.Parallel()
	claim(t, "poweroff")
	r := run(t, box{script: `echo up; echo o >/proc/sysrq-trigger; sleep 1000`})
	if r.code != 125 || !strings.Contains(r.stderr, "it was powered off or restarted from inside") {
		t.Errorf("exit code %d, stderr:\n%s", r.code, r.stderr)
	}
}

// TestTwoAtOnce: sandboxes do not see each other, though all have the same
// addresses.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	claim(t, "87", "88")
	serve := start(t, box{script: `busybox httpd -p 8000 -h /etc; busybox wget -qO- http://198.18.0.2:8000/hostname && echo up; sleep 1000`})
	r := run(t, box{script: `echo "== other"; probe tcp 198.18.0.2:8000; probe tcp 198.18.0.1:8000; echo "== end"`})
	r.ok(t)
	r.says(t, "other", `(?s)^refused.*\nrefused`)
	if !strings.Contains(serve.out.String(), "up") {
		t.Error("control: the server was not up")
	}
}

// TestAuditShown: the log is shown at the end where that is asked for, and
// filtered by sb-policy.
func TestAuditShown(t *testing.T) {
	t.Parallel()
	claim(t, "86")
	r := run(t, box{flags: []string{"--allow", "allowed.example.org", "--show-policy-log"}, script: `
curl -sS --max-time 20 http://allowed.example.org/ ; curl -sS http://denied.example.org/ ; true`})
	r.ok(t)
	var shown []string
	for l := range strings.Lines(r.stderr) {
		if _, err := audit.Parse([]byte(strings.TrimSuffix(l, "\n"))); err == nil {
			shown = append(shown, l)
		}
	}
	if len(shown) != len(r.audit)-1 && len(shown) != len(r.audit) { // the gate's last line may come later
		t.Errorf("--show-policy-log shows %d lines of %d", len(shown), len(r.audit))
	}
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "sb-policy"), "log", "--denied")
	cmd.Stdin = strings.NewReader(r.auditText())
	out, err := cmd.Output()
	if err != nil || strings.Contains(string(out), " allow ") || !strings.Contains(string(out), " deny dns denied.example.org ") {
		t.Errorf("sb-policy log --denied: %v\n%s", err, out)
	}
}
