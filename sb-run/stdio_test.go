package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStdin: whatever stdin is, the command runs, and ends when it ends.
func TestStdin(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	dir, err := os.Open(s.work)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	silent, w, err := os.Pipe() // never written, never closed
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	endless, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	for _, c := range []struct {
		name    string
		stdin   io.Reader
		command string
		code    int
		stdout  string
		stderr  string
	}{
		{"/dev/null", nil, "cat; exit 3", 3, "", "!sb-run: "},
		{"a file", strings.NewReader("text"), "cat; exit 3", 3, "text", "!sb-run: "},
		{"a pipe that stays silent", silent, "exit 3", 3, "", "!sb-run: "},
		{"without end, not read", endless, "exit 3", 3, "", "!sb-run: "},
		{"without end, read in part", endless, "head -c 2000000 | wc -c; exit 3", 3, "2000000\n", "!sb-run: "},
		{"without end, closed by the command", endless, "exec <&-; sleep 0.2; exit 3", 3, "", "!sb-run: "},
		{"a directory", dir, "cat; exit 3", 3, "", "sb-run: warning: read stdin: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := s.cmd("img", "--allow", "a.example", "--", "sh", "-c", c.command)
			cmd.Stdin = c.stdin
			got := s.start(cmd).wait()
			got.want(t, c.code, c.stderr)
			if got.stdout != c.stdout {
				t.Errorf("stdout %q, want %q", got.stdout, c.stdout)
			}
		})
	}
	t.Run("closed", func(t *testing.T) {
		got := s.start(s.shell(`exec "$0" img --allow a.example -- sh -c 'cat; echo out; exit 3' <&-`)).wait()
		got.want(t, 3, "!sb-run: ")
		if got.stdout != "out\n" {
			t.Errorf("stdout %q", got.stdout)
		}
	})
}

// shell is a shell script in which $0 is sb-run.
func (s *stage) shell(script string) *exec.Cmd {
	cmd := s.cmd()
	cmd.Args = []string{"sh", "-c", script, cmd.Path}
	cmd.Path = "/bin/sh"
	return cmd
}

// TestUnread: input that the command does not read keeps neither a signal nor
// its end waiting.
func TestUnread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(s *stage, r *running)
		code int
	}{
		{"its end", func(s *stage, r *running) { s.put("go", "") }, 5},
		{"a signal", func(s *stage, r *running) { r.cmd.Process.Signal(syscall.SIGTERM) }, 143},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := s.cmd("img", "--", "@unread")
			cmd.Stdin = r
			run := s.start(cmd)
			r.Close()
			run.untilUp()
			// As much as every buffer on the way takes.
			full := fill(t, w)
			if full < 256<<10 {
				t.Errorf("control: %d bytes filled every buffer", full)
			}
			c.end(s, run)
			told := time.Now()
			run.wait().want(t, c.code, "!error")
			if d := time.Since(told); d > 5*time.Second {
				t.Errorf("it took %v", d)
			}
			w.Close()
		})
	}
}

// fill writes until nothing more goes in, and returns how much did.
func fill(t *testing.T, w *os.File) (n int) {
	t.Helper()
	for {
		w.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		k, err := w.Write(make([]byte, 64<<10))
		n += k
		if err != nil {
			return n
		}
	}
}

// TestOutput: all of it comes, apart, in order.
func TestOutput(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const size = 30 << 20
	script := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; head -c %d /dev/zero | tr '\\0' y >&2; echo last; exit 4", size, size/10)
	cmd := s.cmd("img", "--allow", "a.example", "--", "sh", "-c", script)
	out, errs := sha256.New(), sha256.New()
	cmd.Stdout, cmd.Stderr = out, errs
	s.start(cmd).wait().want(t, 4)
	want := sha256.New()
	want.Write(bytes.Repeat([]byte("x"), size))
	want.Write([]byte("last\n"))
	if !bytes.Equal(out.Sum(nil), want.Sum(nil)) {
		t.Error("stdout is not what was written")
	}
	want.Reset()
	want.Write(bytes.Repeat([]byte("y"), size/10))
	if !bytes.Equal(errs.Sum(nil), want.Sum(nil)) {
		t.Error("stderr is not what was written")
	}
}

// TestNobodyReads: output that nobody reads ends the command as in a pipeline of
// a shell, quietly.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, script := range []string{
		`{ "$0" img --allow a.example -- yes; echo $? >code; } | head -1`,
		`{ "$0" img --allow a.example -- sh -c 'yes >&2' 2>&1 >/dev/null; echo $? >code; } | head -1`,
		// Neither is written any more: what sb-run itself has to say is not either.
		`{ "$0" img -- yes 2>&1; echo $? >code; } | head -1`,
	} {
		os.Remove(filepath.Join(s.work, "code"))
		got := s.start(s.shell(script)).wait()
		got.want(t, 0, "!sb-run: ")
		if code, _ := os.ReadFile(filepath.Join(s.work, "code")); string(code) != "141\n" {
			t.Errorf("%s: exit code %q, want 141", script, code)
		}
		if lines := strings.Count(got.stdout, "\n"); lines != 1 {
			t.Errorf("%s: %d lines", script, lines)
		}
	}
}

// TestFullOutput: output that cannot be written is an error of ours.
func TestFullOutput(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := s.cmd("img", "--", "sh", "-c", "echo text; sleep 1000")
	cmd.Stdout = full
	begun := time.Now()
	s.start(cmd).wait().want(t, 125, "sb-run: error: pass the command's output on: write ", "no space left on device\n", "!guest stream")
	if d := time.Since(begun); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
}

// TestStuckReader: a reader of the output that does not read keeps no signal
// waiting.
func TestStuckReader(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := s.cmd("img", "--", "yes")
	cmd.Stdout = w
	run := s.start(cmd)
	w.Close()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	run.cmd.Process.Signal(syscall.SIGTERM)
	run.wait().want(t, 143, "!error")
}
