package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// program is a command that cleans up behind itself when it is told to end. It
// is told so, all its process group, by the end of the command's context, and
// by the end of this process, however it ends.
//
// The group is its own, so that a terminal's Ctrl-C reaches this process alone.
// Its standard error is a file: a pipe that breaks when this process dies would
// end it before it has cleaned up.
type program struct {
	*exec.Cmd
	name   string
	stderr *os.File
	all    string // what it said on standard error, if it did not fail
}

// leashed starts a command beside a shell that waits for the end of file on
// descriptor 3, of which this process alone has the other end.
const leashed = `(trap "" TERM; read -r _ <&3; kill -TERM 0) </dev/null >/dev/null 2>&1 & exec "$0" "$@" 3<&-`

// newProgram takes over cmd, whose standard error must not be set.
func newProgram(cmd *exec.Cmd) *program {
	p := &program{Cmd: cmd, name: cmd.Args[0]}
	cmd.Path, cmd.Args, cmd.Err = "/bin/sh", append([]string{"sh", "-c", leashed}, cmd.Args...), nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return p
}

// run runs the program. The end of what it said on standard error becomes part
// of the error if it fails.
func (p *program) run() (err error) {
	if p.stderr, err = os.CreateTemp("", "sb-image-"); err != nil {
		return err
	}
	defer p.stderr.Close()
	if err := os.Remove(p.stderr.Name()); err != nil {
		return err
	}
	p.Stderr = p.stderr
	if err = p.runLeashed(); err == nil {
		const most = 4 << 20
		b, err := io.ReadAll(io.NewSectionReader(p.stderr, 0, most))
		p.all = string(b)
		return err
	}
	if text := p.lastWords(); text != "" {
		return fmt.Errorf("%s: %w:\n%s", p.name, err, text)
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// runLeashed runs the program until it ends or this process does.
func (p *program) runLeashed() error {
	leash, end, err := os.Pipe()
	if err != nil {
		return err
	}
	defer end.Close()
	p.ExtraFiles = []*os.File{leash}
	err = p.Start()
	leash.Close()
	if err != nil {
		return err
	}
	return p.Wait()
}

// lastWords are the last whole lines of what it said.
func (p *program) lastWords() string {
	const most = 2048
	size, err := p.stderr.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(0, size-most)
	b, _ := io.ReadAll(io.NewSectionReader(p.stderr, from, most))
	if from > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return strings.TrimSpace(string(b))
}

// output runs a program and returns its standard output.
func output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout = &out
	err := newProgram(cmd).run()
	return out.String(), err
}

// pipe starts a program and returns what it writes. Close ends it if it still
// runs; its error is the program's own, if that failed by itself.
func pipe(cmd *exec.Cmd) (io.ReadCloser, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	p := &piped{File: r, done: make(chan error, 1)}
	go func() {
		err := newProgram(cmd).run()
		w.Close()
		p.done <- err
	}()
	return p, nil
}

type piped struct {
	*os.File
	atEnd bool
	done  chan error
}

func (p *piped) Read(b []byte) (int, error) {
	n, err := p.File.Read(b)
	p.atEnd = p.atEnd || err == io.EOF
	return n, err
}

// Close waits for the program, which gets an error from its next write if it
// was not read to the end; that error is then not its own.
func (p *piped) Close() error {
	p.File.Close()
	err := <-p.done
	if !p.atEnd {
		return nil
	}
	return err
}
