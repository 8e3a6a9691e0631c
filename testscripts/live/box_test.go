package live

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/testscripts/world"
)

// box is one sandbox to run.
type box struct {
	flags  []string // of sb-run
	script string   // for sh in the guest
	stdin  io.Reader
	bin    string // where the tools are, if not where all others are
	image  string // imageRef if it is empty
	config string // the user's config.toml
	env    []string
}

// result is what came of it.
type result struct {
	t      *testing.T
	code   int
	stdout string
	stderr string
	audit  []audit.Line
}

// runTime bounds one sandbox: under emulation, two at a time.
const runTime = 3 * time.Minute

func sbRun() string { return filepath.Join(os.Getenv(binVar), "sb-run") }

// homes gives a run directories of its own and the shared images.
func homes(t *testing.T) (env []string, state string) {
	dir := t.TempDir()
	os.Chmod(dir, 0o700)
	env = append(os.Environ(), "XDG_DATA_HOME="+os.Getenv(dataVar), "XDG_STATE_HOME="+dir+"/state", "XDG_CONFIG_HOME="+dir+"/config",
		"XDG_RUNTIME_DIR=", "SB_HOME=", "HOME="+dir, "PATH="+os.Getenv(binVar)+":"+os.Getenv("PATH"))
	return env, filepath.Join(dir, "state", "sb")
}

// configure writes its configuration, if it has one.
func (b box) configure(t *testing.T, state string) {
	if b.config != "" {
		writeConfig(t, filepath.Join(filepath.Dir(filepath.Dir(state)), "config", "sb"), b.config)
	}
}

// args are sb-run's for the box: a small machine with the probe and the world's
// CA at /world.
// cold has the machines boot. They are restored from memory else, as a user's.
var cold = flag.Bool("cold", false, "boot the machines, do not restore them from memory")

func (b box) args() []string {
	image := imageRef
	if b.image != "" {
		image = b.image
	}
	args := []string{image, "--cpus=1", "--memory=512m", "-v", filepath.Join(os.Getenv(dataVar), "tools") + ":/tools:ro", "-v", world.Dir() + ":/world:ro"}
	args = append(args, b.flags...)
	if *cold {
		args = append(args, "--cold")
	}
	if b.script != "" {
		args = append(args, "--", "sh", "-c", "PATH=$PATH:/tools\n"+b.script)
	}
	return args
}

// run runs a sandbox to its end.
func run(t *testing.T, b box) *result {
	t.Helper()
	env, state := homes(t)
	env = append(env, b.env...)
	b.configure(t, state)
	program := sbRun()
	if b.bin != "" {
		program = filepath.Join(b.bin, "sb-run")
	}
	cmd := exec.Command(program, b.args()...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = b.stdin, &out, &errs, env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(runTime, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !timer.Stop() {
		t.Fatalf("the run did not end in %v:\n%s%s", runTime, out.String(), errs.String())
	}
	r := &result{t: t, stdout: out.String(), stderr: errs.String(), audit: readAudit(t, state)}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.code = exit.ExitCode()
	}
	if t.Failed() || testing.Verbose() {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("exit %d\nstdout:\n%s\nstderr:\n%s\naudit:\n%s", r.code, r.stdout, r.stderr, r.auditText())
			}
		})
	}
	leftNothing(t, state)
	return r
}

func writeConfig(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// readAudit reads the log of the one run of a state directory.
func readAudit(t *testing.T, state string) (lines []audit.Line) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(state, "log", "*.log*"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(text)) {
			line, err := audit.Parse([]byte(l))
			if err != nil {
				t.Errorf("%s: %q: %v", f, l, err)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// leftNothing checks that a run that ended left no run directory.
func leftNothing(t *testing.T, state string) {
	t.Helper()
	left, _ := filepath.Glob(filepath.Join(state, "run", "*"))
	if len(left) > 0 {
		t.Errorf("run directories left: %v", left)
	}
}

func (r *result) auditText() string {
	var b strings.Builder
	for _, l := range r.audit {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}

// section returns what the script printed between "== name" and the next "==".
func (r *result) section(name string) string {
	_, rest, ok := strings.Cut(r.stdout, "== "+name+"\n")
	if !ok {
		r.t.Errorf("the script never came to %q; stdout:\n%s\nstderr:\n%s", name, r.stdout, r.stderr)
		return ""
	}
	part, _, _ := strings.Cut(rest, "\n== ")
	return strings.TrimSpace(part)
}

// says checks that a section matches a pattern.
func (r *result) says(t *testing.T, section, pattern string) {
	t.Helper()
	if got := r.section(section); !regexp.MustCompile(pattern).MatchString(got) {
		t.Errorf("%s: %q, want %q", section, got, pattern)
	}
}

// logs checks that a line of the audit log matches a pattern.
func (r *result) logs(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for _, l := range r.audit {
		if re.MatchString(l.String()) {
			return
		}
	}
	t.Errorf("no audit line matches %q:\n%s", pattern, r.auditText())
}

// logsNot checks that no line of the audit log matches.
func (r *result) logsNot(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for _, l := range r.audit {
		if re.MatchString(l.String()) {
			t.Errorf("audit line %q matches %q", l, pattern)
		}
	}
}

// ok stops a test whose sandbox did not run its script to the end.
func (r *result) ok(t *testing.T) {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d\nstdout:\n%s\nstderr:\n%s", r.code, r.stdout, r.stderr)
	}
}

// seen is what the world's servers have seen.
func seen(t *testing.T) world.Seen {
	t.Helper()
	s, err := world.Look()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
