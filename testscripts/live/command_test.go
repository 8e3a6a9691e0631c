package live

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestCommand: the command's input, output, environment and end are as if it
// ran here.
func TestCommand(t *testing.T) {
	t.Parallel()
	envFile := filepath.Join(t.TempDir(), "vars")
	os.WriteFile(envFile, []byte("# a comment\nFROM_FILE=a b\nBOTH=file\n"), 0o600)
	r := run(t, box{
		flags: []string{"--env-file", envFile, "-e", "BOTH=flag", "-e", "EMPTY=", "-e", "HOME", "--user", "nobody", "--workdir", "/var"},
		stdin: io.MultiReader(strings.NewReader(strings.Repeat("0123456789abcdef\n", 1<<16)), strings.NewReader("last\n")),
		script: `
echo "== stdin"; md5sum; wc -c </dev/null
echo "== out"; echo out; echo err >&2
echo "== env"; echo "$FROM_FILE|$BOTH|${EMPTY-unset}|$HOME|$USER"
echo "== who"; id -un; id -u; pwd
echo "== tty"; test -t 0 && echo yes || echo no
echo "== big"; head -c 20000000 /dev/zero | tr '\0' x | wc -c; head -c 3000000 /dev/zero | tr '\0' y
echo
echo "== end"
exit 42`})
	t.Run("stdin to its end", func(t *testing.T) {
		claim(t, "stdin")
		r.says(t, "stdin", `^[0-9a-f]{32}  -\n0$`)
		r.says(t, "tty", `^no$`)
	})
	t.Run("stdout and stderr apart", func(t *testing.T) {
		claim(t, "streams")
		r.says(t, "out", `^out$`)
		if !strings.Contains(r.stderr, "err\n") {
			t.Errorf("stderr: %q", r.stderr)
		}
		if n := strings.Count(r.stdout, "y"); n < 3000000 {
			t.Errorf("%d of 3000000 bytes of output came", n)
		}
	})
	t.Run("environment: a flag beats a file", func(t *testing.T) {
		claim(t, "env")
		r.says(t, "env", `^a b\|flag\|\|/\S*\|nobody$`)
	})
	t.Run("user and directory", func(t *testing.T) {
		claim(t, "user")
		r.says(t, "who", `^nobody\n65534\n/var$`)
	})
	t.Run("exit code", func(t *testing.T) {
		claim(t, "exit")
		if r.code != 42 {
			t.Errorf("exit code %d, want 42", r.code)
		}
	})
}

// TestExitCodes: a signal, a command that is not there, one that cannot run.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		command []string
		want    int
	}{
		{"killed by a signal", []string{"sh", "-c", "kill -TERM $$"}, 143},
		{"not found", []string{"no-such-command"}, 127},
		{"not executable", []string{"/etc/passwd"}, 126},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			claim(t, "exit")
			r := run(t, box{flags: append([]string{"--"}, c.command...)})
			if r.code != c.want {
				t.Errorf("exit code %d, want %d; stderr:\n%s", r.code, c.want, r.stderr)
			}
		})
	}
}

// started is a sandbox that runs in the background.
type started struct {
	t     *testing.T
	cmd   *exec.Cmd
	state string
	out   *lockedBuffer
	errs  *lockedBuffer
	ended chan struct{}
}

// start starts a sandbox and waits until its script has said "up".
func start(t *testing.T, b box) *started {
	t.Helper()
	env, state := homes(t)
	b.configure(t, state)
	return startIn(t, b, append(env, b.env...), state)
}

// startIn is start with directories that were made before.
func startIn(t *testing.T, b box, env []string, state string) *started {
	t.Helper()
	s := &started{t: t, cmd: exec.Command(sbRun(), b.args()...), state: state, out: &lockedBuffer{}, errs: &lockedBuffer{}, ended: make(chan struct{})}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = b.stdin, s.out, s.errs, env
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.cmd.Wait(); close(s.ended) }()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.ended
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", s.out, s.errs)
		}
	})
	s.until("up", func() bool { return strings.Contains(s.out.String(), "up\n") })
	return s
}

// until waits for a condition.
func (s *started) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(runTime); !ok(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.ended:
			if ok() {
				return
			}
			s.t.Fatalf("the sandbox ended before %s\nstdout:\n%s\nstderr:\n%s", what, s.out, s.errs)
		default:
		}
		if time.Now().After(end) {
			s.t.Fatalf("no %s in %v\nstdout:\n%s\nstderr:\n%s", what, runTime, s.out, s.errs)
		}
	}
}

// wait waits for the end, at most d, and returns the exit code.
func (s *started) wait(d time.Duration) int {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(d):
		s.t.Fatalf("still running after %v\nstderr:\n%s", d, s.errs)
	}
	return s.cmd.ProcessState.ExitCode()
}

// processes are those of the sandbox that still run: sb-run's children carry
// the path of the run directory in their arguments, QEMU the machine's name.
func (s *started) processes() (all []string) {
	out, _ := exec.Command("ps", "-eo", "pid,args").Output()
	for l := range strings.Lines(string(out)) {
		if strings.Contains(l, s.state) {
			all = append(all, strings.TrimSpace(l))
		}
	}
	return all
}

// gone checks that nothing of the sandbox is left: no process, no run directory.
func (s *started) gone(t *testing.T) {
	t.Helper()
	var left []string
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = s.processes(); len(left) == 0 {
			break
		}
	}
	for _, p := range left {
		t.Errorf("still running: %s", p)
	}
}

type lockedBuffer struct {
	mu  chan struct{}
	buf bytes.Buffer
}

func (b *lockedBuffer) lock() func() {
	if b.mu == nil {
		b.mu = make(chan struct{}, 1)
	}
	b.mu <- struct{}{}
	return func() { <-b.mu }
}

func (b *lockedBuffer) Write(p []byte) (int, error) { defer b.lock()(); return b.buf.Write(p) }
func (b *lockedBuffer) String() string              { defer b.lock()(); return b.buf.String() }

// onTerminal runs a sandbox on a terminal of its own; type feeds it, and the
// screen is what it printed.
func onTerminal(t *testing.T, b box, rows, cols uint16, talk func(master *os.File, screen *lockedBuffer, s *started)) (screen string, code int) {
	t.Helper()
	env, state := homes(t)
	s := &started{t: t, cmd: exec.Command(sbRun(), b.args()...), state: state, out: &lockedBuffer{}, errs: &lockedBuffer{}, ended: make(chan struct{})}
	s.cmd.Env = append(env, "TERM=xterm-256color", "COLORTERM=truecolor", "LC_ALL=de_DE.UTF-8")
	master, err := pty.StartWithSize(s.cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		t.Fatal(err)
	}
	copied := make(chan struct{})
	go func() { io.Copy(s.out, master); close(copied) }()
	go func() { s.cmd.Wait(); close(s.ended) }()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.ended
		master.Close()
		if t.Failed() {
			t.Logf("screen:\n%s", s.out)
		}
	})
	talk(master, s.out, s)
	code = s.wait(runTime)
	<-copied
	return s.out.String(), code
}

// TestTerminal: with a terminal here there is one inside, of the same size, and
// Ctrl-C goes there.
func TestTerminal(t *testing.T) {
	t.Parallel()
	claim(t, "62", "63", "64", "65", "ctrl-c")
	screen, code := onTerminal(t, box{script: `
test -t 0 && echo stdin-is-tty; test -t 1 && echo stdout-is-tty
stty size; echo "term=$TERM"
trap 'echo interrupted' INT
echo waiting; sleep 1000
stty size
echo "last"; exit 9`}, 40, 120, func(master *os.File, screen *lockedBuffer, s *started) {
		s.until("the script waits", func() bool { return strings.Contains(screen.String(), "waiting") })
		pty.Setsize(master, &pty.Winsize{Rows: 50, Cols: 132})
		time.Sleep(300 * time.Millisecond) // the resize has no answer to wait for; the size is checked below
		master.Write([]byte{3})
	})
	for _, want := range []string{"stdin-is-tty", "stdout-is-tty", "40 120", "term=xterm-256color", "interrupted", "50 132", "last"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen lacks %q:\n%s", want, screen)
		}
	}
	if code != 9 {
		t.Errorf("exit code %d, want 9: Ctrl-C went to the guest and the script went on", code)
	}
}

// TestNoTerminal: --no-tty on a terminal gives the command none.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	claim(t, "tty")
	screen, _ := onTerminal(t, box{flags: []string{"--no-tty"}, script: `test -t 1 && echo is-a-tty || echo is-no-tty`}, 24, 80,
		func(*os.File, *lockedBuffer, *started) {})
	if !strings.Contains(screen, "is-no-tty") {
		t.Errorf("screen:\n%s", screen)
	}
}

// TestManyCommands: one machine serves many commands at once.
func TestManyCommands(t *testing.T) {
	t.Parallel()
	claim(t, "many")
	env, _ := homes(t)
	script := `
set -eu
dir=$(mktemp -d)
sb-image disk "$dir/disk"
cat >"$dir/sandbox.toml" <<END
[machine]
cpus = 1
memory = "512m"
kernel = "$(sb-image kernel show)"
base = "$(sb-image path '` + imageRef + `')"
disk = "$dir/disk"
END
sb-run pair frames=dgram dns=stream guest=stream leash=stream -- sh -euc '
m=$1/sandbox.toml
sb-dns --manifest "$m" --dns=$dns_a --leash=$leash_a &
sb-gate --manifest "$m" --frames=$frames_a --dns=$dns_b --leash=$leash_a >"$1/audit.log" &
sb-vm --manifest "$m" --frames=$frames_b --guest=$guest_a --leash=$leash_a &
sb-run attach --guest=$guest_b -- sh -c "echo first; exit 3" || echo "first ended with $?"
sb-run attach --guest=$guest_b -- sh -c "echo second"
echo third | sb-run attach --guest=$guest_b -- cat
' sh "$dir"
rm -r "$dir"
`
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?s)first\n.*first ended with 3\n.*second\n.*third\n`).Match(out) {
		t.Errorf("%v:\n%s", err, out)
	}
}
