package netns

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sb/lib/audit"

	"golang.org/x/sys/unix"
)

// whole is a sandbox as sb-run runs it: the built tools but for the machine, for
// which a namespace stands. The guest runs what it is told, line by line.
type whole struct {
	t         *testing.T
	home      string // SB_HOME
	cmd       *exec.Cmd
	in        io.WriteCloser
	out, errs lockedBuffer
	done      chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// patience bounds every wait; the machine may be busy.
const patience = 20 * time.Second

// newWhole starts one whose files lie in home; the test's end ends it.
func newWhole(t *testing.T, home string, rules ...string) *whole {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{"sb-run": binVar, "sb-gate": binVar, "sb-dns": binVar, "sb-vm": toolsVar, "sb-image": toolsVar, "tapwire": toolsVar, "probe": toolsVar} {
		source := filepath.Join(os.Getenv(from), name)
		if from == toolsVar && strings.HasPrefix(name, "sb-") {
			source = filepath.Join(os.Getenv(from), "tapvm")
		}
		if out, err := exec.Command("cp", source, filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	os.Chmod(home, 0o700)
	args := []string{"img", "--no-tty"}
	for _, r := range rules {
		args = append(args, "--allow", r)
	}
	w := &whole{t: t, home: home, done: make(chan struct{})}
	w.cmd = exec.Command(filepath.Join(dir, "sb-run"), append(args, "--", "sh", "-c", `echo up; while read -r line; do eval "$line"; done`)...)
	w.cmd.Env = []string{"SB_HOME=" + home, "HOME=" + home, "PATH=" + os.Getenv("PATH")}
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.errs
	w.cmd.WaitDelay = 5 * time.Second
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.cmd.Wait(); close(w.done) }()
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		<-w.done
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", &w.out, &w.errs)
		}
	})
	w.until("the guest", func() bool { return strings.Contains(w.out.String(), "up\n") })
	return w
}

// do has the guest run a line, and goes on.
func (w *whole) do(line string) { fmt.Fprintln(w.in, line) }

func (w *whole) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("no %s in %v", what, patience)
		}
		select {
		case <-w.done:
			if !ok() {
				w.t.Fatalf("sb-run ended before %s", what)
			}
		default:
		}
	}
}

// fetches waits until the guest can fetch a page of a name: the control.
func (w *whole) fetches(name, page string) {
	w.t.Helper()
	w.do(fmt.Sprintf("(until curl -sS --max-time 5 http://%s/%s; do sleep 0.1; done) &", name, page))
	w.until("the page "+page, func() bool { return strings.Contains(w.out.String(), "GET /"+page+" ") })
}

// pid is the process of a tool of this run.
func (w *whole) pid(tool string) (pid int) {
	w.t.Helper()
	w.until(tool, func() bool { pid = w.find(tool); return pid != 0 })
	return pid
}

func (w *whole) find(tool string) int {
	out, _ := exec.Command("ps", "-o", "pid=,stat=,comm=", "--ppid", strconv.Itoa(w.cmd.Process.Pid)).Output()
	for l := range strings.Lines(string(out)) {
		if f := strings.Fields(l); len(f) == 3 && f[2] == tool && f[1][0] != 'Z' {
			pid, _ := strconv.Atoi(f[0])
			return pid
		}
	}
	return 0
}

// children are all processes of this run that live, whatever became of sb-run.
func (w *whole) children() (all []string) {
	dir := filepath.Dir(w.cmd.Path)
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, l := range links {
		if exe, err := os.Readlink(l); err == nil && filepath.Dir(exe) == dir && exe != w.cmd.Path {
			all = append(all, l+" "+exe)
		}
	}
	return all
}

// runs says whether a process is there and has not ended.
func runs(pid int) bool { return state(pid) != 0 && state(pid) != 'Z' }

// state is that of a process, as in proc(5); 0: there is none.
func state(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[0]
}

// limit lets a process that runs have no more of a resource, until restored.
func limit(t *testing.T, pid, what int) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Prlimit(pid, what, nil, &old); err != nil {
		t.Fatal(err)
	}
	set := func(to unix.Rlimit) {
		if err := unix.Prlimit(pid, what, &to, nil); err != nil {
			t.Errorf("limit process %d: %v", pid, err)
		}
	}
	set(unix.Rlimit{Max: old.Max})
	return func() { set(old) }
}

// wait waits for the end of sb-run and returns its exit code. Nothing of it may
// be left.
func (w *whole) wait() int {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		w.t.Fatalf("sb-run did not end in %v", patience)
	}
	for end := time.Now().Add(10 * time.Second); len(w.children()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Errorf("left: %q", w.children())
			break
		}
	}
	if left, _ := filepath.Glob(filepath.Join(w.home, "state", "run", "*")); len(left) > 0 {
		w.t.Errorf("left: %q", left)
	}
	ws := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// end ends the guest's shell, and with it the run.
func (w *whole) end() {
	w.t.Helper()
	w.in.Close()
	if code := w.wait(); code != 0 {
		w.t.Errorf("exit code %d", code)
	}
}

// log is the audit log, of a run that goes on or has ended.
func (w *whole) log() (lines []audit.Line) {
	w.t.Helper()
	files, _ := filepath.Glob(filepath.Join(w.home, "state", "log", "*"))
	if len(files) == 0 {
		files, _ = filepath.Glob(filepath.Join(w.home, "state", "run", "*", "audit.log"))
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			w.t.Fatal(err)
		}
		lines = append(lines, parse(w.t, text)...)
	}
	return lines
}

// times are when the log says that of which the reason is why.
func (w *whole) times(why string) (all []time.Time) {
	for _, l := range w.log() {
		if string(l.Reason) == why {
			all = append(all, l.Time)
		}
	}
	return all
}

func (w *whole) count(why string) int { return len(w.times(why)) }
