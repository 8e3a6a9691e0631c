package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"sb/lib/fd"
	"sb/lib/say"
)

// How long a tool may take to be ready. The boots of a machine, of which one may be
// to save it and one because that failed, have their own bounds in
// sb-vm, which are shorter.
const (
	partReadyTime = 20 * time.Second
	vmReadyTime   = 300 * time.Second
)

// How long a child may take to end by itself. sb-vm gives the guest 3 seconds.
const (
	vmEndTime   = 6 * time.Second
	partEndTime = 2 * time.Second
	lastWords   = 5 * time.Second // between the end of its readiness and its own
)

// wire is a descriptor to hand to a child, under the flag of its name.
type wire struct {
	flag string
	file *os.File
}

// child is one of our tools that runs.
type child struct {
	name  string
	cmd   *exec.Cmd
	ready *os.File
	done  chan struct{} // closed when it has ended
	err   error         // how, once done is closed
	said  *said
}

// startChild starts a tool by its path, with its manifest and wires. It is in a process group
// of its own, so that a terminal's Ctrl-C reaches nobody by accident, and ends
// when its leash does.
func (t tools) startChild(name, manifest string, leash *os.File, wires ...wire) (*child, error) {
	return start(name, exec.Command(t[name], "--manifest", manifest), leash, wires...)
}

// start starts a tool by its command, in the environment of such a tool if it has
// none.
func start(name string, cmd *exec.Cmd, leash *os.File, wires ...wire) (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer w.Close()
	c := &child{name: name, ready: r, done: make(chan struct{}), said: &said{name: name, to: os.Stderr}}
	c.cmd = cmd
	for _, w := range append(wires, wire{"ready", w}, wire{"leash", leash}) {
		c.cmd.Args = append(c.cmd.Args, fmt.Sprintf("--%s=%d", w.flag, 3+len(c.cmd.ExtraFiles)))
		c.cmd.ExtraFiles = append(c.cmd.ExtraFiles, w.file)
	}
	if c.cmd.Env == nil {
		c.cmd.Env = childEnvironment(name)
	}
	c.cmd.Stderr = c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// What it leaves behind may hold its stderr open.
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		r.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go c.wait()
	return c, nil
}

// passed is what each tool gets of our environment: where its files are. The
// gate and the resolver get nothing, so that no variable of the user's shell (a
// proxy, a resolver option, a debugging switch) acts on the boundary.
var passed = map[string][]string{
	"sb-vm": {"PATH", "HOME", "TMPDIR", "SB_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"},
}

func childEnvironment(name string) []string {
	env := []string{} // not nil, which would be all of ours
	for _, v := range passed[name] {
		if value, ok := os.LookupEnv(v); ok {
			env = append(env, v+"="+value)
		}
	}
	return env
}

func (c *child) wait() {
	if c.err = c.cmd.Wait(); errors.Is(c.err, exec.ErrWaitDelay) {
		c.err = nil
	}
	c.said.flush()
	close(c.done)
}

// awaitReady waits until the child is ready, at most that long. One that is not
// has ended when it returns.
func (c *child) awaitReady(limit time.Duration) error {
	defer c.ready.Close()
	late := time.AfterFunc(limit, c.kill)
	err := fd.WaitReady(c.ready, say.Version)
	switch {
	case !late.Stop():
		<-c.done
		return c.failed(fmt.Errorf("%s was not ready within %v", c.name, limit))
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		// It is ending; its own words say more than the end of a pipe.
		waitOr(c.done, lastWords, context.Background(), c.kill)
		return c.failed(c.end())
	}
	c.kill()
	<-c.done
	return say.WithHint(fmt.Errorf("%s (%s) %w", c.name, c.cmd.Path, err), "the tools of a release are installed together: make install")
}

// failed is the error of a child that has ended: its own words, or else the
// cause.
func (c *child) failed(cause error) error {
	text, hints := c.said.words()
	if text == "" {
		return withHints(cause, hints)
	}
	return withHints(fmt.Errorf("%s: %s", c.name, text), hints)
}

// end says how the child ended.
func (c *child) end() error {
	if c.err != nil {
		return fmt.Errorf("%s ended: %w", c.name, c.err)
	}
	return fmt.Errorf("%s ended by itself", c.name)
}

func (c *child) kill() { c.cmd.Process.Kill() }

// stop ends the child with a signal, or by force if it takes longer than limit.
// What it reports of its end is passed on.
func (c *child) stop(sig os.Signal, limit time.Duration, hurry context.Context) {
	if c.ended() {
		return
	}
	c.cmd.Process.Signal(sig)
	waitOr(c.done, limit, hurry, c.kill)
	if text, _ := c.said.words(); text != "" {
		say.Warn("%v", c.failed(nil))
	}
}

// ended reports whether the child has ended.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// waitOr waits until done. After limit, or in a hurry, it does something about it.
func waitOr(done <-chan struct{}, limit time.Duration, hurry context.Context, otherwise func()) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	case <-hurry.Done():
	}
	otherwise()
	<-done
}
