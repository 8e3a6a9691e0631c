package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stage is a place where sb-run runs with stand-ins for its tools.
type stage struct {
	t    *testing.T
	dir  string // of the tools
	home string // SB_HOME
	work string // where sb-run is called
	env  []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, dir: filepath.Join(top, "bin"), home: filepath.Join(top, "home"), work: filepath.Join(top, "work")}
	for _, d := range []string{s.dir, s.home, s.work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"sb-run", "sb-gate", "sb-dns", "sb-vm", "sb-image", "sb-broker"} {
		if err := link(self, filepath.Join(s.dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	s.put("image", "")
	s.put("kernel", "")
	s.put("image.json", `{"ref":"img","digest":"sha256:00","config":{"Env":["PATH=/bin:/usr/bin","FROM=image"],"Cmd":["true"]}}`)
	s.env = []string{"SB_HOME=" + s.home, "HOME=" + top, "PATH=" + os.Getenv("PATH"), "TERM=dumb"}
	t.Cleanup(s.clean)
	return s
}

// link makes a second name of a file, or a copy where there can be none.
func link(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o700)
}

// put writes a file beside the tools.
func (s *stage) put(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// config writes the user's configuration.
func (s *stage) config(text string) {
	s.t.Helper()
	dir := filepath.Join(s.home, "config")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// does says what is not as usual about a tool, a line a start.
func (s *stage) does(tool string, lines ...string) {
	s.t.Helper()
	s.put(tool+".does", strings.Join(lines, "\n"))
}

// noted reads what was noted in a file beside the tools.
func noted[T any](s *stage, file string) (all []T) {
	s.t.Helper()
	text, _ := os.ReadFile(filepath.Join(s.dir, file))
	for l := range strings.Lines(string(text)) {
		var v T
		if json.Unmarshal([]byte(l), &v) == nil {
			all = append(all, v)
		}
	}
	return all
}

func (s *stage) starts(tool string) []started { return noted[started](s, tool+".starts") }

func (s *stage) cmd(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.dir, "sb-run"), args...)
	cmd.Dir, cmd.Env = s.work, s.env
	return cmd
}

// result is how a run ended.
type result struct {
	code           int // 128+n for a signal that ended sb-run itself
	stdout, stderr string
}

// run runs sb-run to its end.
func (s *stage) run(args ...string) result {
	s.t.Helper()
	return s.start(s.cmd(args...)).wait()
}

// running is an sb-run in the background.
type running struct {
	s         *stage
	cmd       *exec.Cmd
	out, errs lockedBuffer
	done      chan struct{}
}

// start starts sb-run; stdin, stdout and stderr that are not set are nothing and
// buffers.
func (s *stage) start(cmd *exec.Cmd) *running {
	s.t.Helper()
	r := &running{s: s, cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &r.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.errs
	}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { cmd.Wait(); close(r.done) }()
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		<-r.done
		if s.t.Failed() {
			s.t.Logf("%s\nstdout:\n%s\nstderr:\n%s", clip(fmt.Sprintf("%q", cmd.Args[1:])), clip(r.out.String()), clip(r.errs.String()))
		}
	})
	return r
}

func clip(s string) string { return s[:min(len(s), 2000)] }

// patience bounds every wait of a test.
const patience = 30 * time.Second

func (r *running) wait() result {
	r.s.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.s.t.Fatalf("sb-run did not end in %v; stderr:\n%s", patience, r.errs.String())
	}
	ws := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	code := ws.ExitStatus()
	if ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return result{code, r.out.String(), r.errs.String()}
}

// until waits for a condition.
func (r *running) until(what string, ok func() bool) {
	r.s.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.s.t.Fatalf("no %s in %v", what, patience)
		}
		select {
		case <-r.done:
			if !ok() {
				r.s.t.Fatalf("sb-run ended before %s", what)
			}
		default:
		}
	}
}

// untilStarts waits until a tool was started that often.
func (r *running) untilStarts(tool string, n int) {
	r.s.t.Helper()
	r.until(fmt.Sprintf("start %d of %s", n, tool), func() bool { return len(r.s.starts(tool)) >= n })
}

// untilUp waits until the command has said that it runs.
func (r *running) untilUp() {
	r.s.t.Helper()
	r.until("the command", func() bool { return strings.Contains(r.out.String(), "up\n") })
}

// want checks how a run ended. Texts that begin with ! must not be in stderr.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; stderr:\n%s", r.code, code, r.stderr)
	}
	for _, text := range texts {
		if not, ok := strings.CutPrefix(text, "!"); ok {
			if strings.Contains(r.stderr, not) {
				t.Errorf("stderr holds %q:\n%s", not, r.stderr)
			}
		} else if n := strings.Count(r.stderr, text); n != 1 {
			t.Errorf("stderr holds %q %d times, not once:\n%s", text, n, r.stderr)
		}
	}
}

// log is the audit log of the runs that ended.
func (s *stage) log() string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.home, "state", "log", "*"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		all.Write(text)
	}
	return all.String()
}

// clean checks that nothing is left: no process and no run directory.
func (s *stage) clean() {
	left, _ := filepath.Glob(filepath.Join(s.home, "state", "run", "*"))
	for _, l := range left {
		s.t.Errorf("left: %s", l)
	}
	s.gone()
}

// gone waits until no tool runs any more.
func (s *stage) gone() {
	for _, tool := range []string{"sb-gate", "sb-dns", "sb-vm", "sb-image", "sb-broker", "keeper"} {
		for _, st := range s.starts(tool) {
			for end := time.Now().Add(5 * time.Second); runs(st.PID); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					s.t.Errorf("%s still runs", tool)
					syscall.Kill(st.PID, syscall.SIGKILL)
					break
				}
			}
		}
	}
}

// runs reports whether a process does, a zombie left out.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z' && rest[0] != 'X'
}

// lockedBuffer is a buffer for two goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var _ io.Writer = (*lockedBuffer)(nil)

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}
