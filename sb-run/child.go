package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"sb/lib/fd"
	"sb/lib/say"
)

// readyTime bounds how long a tool may take to be ready; a machine's boot has
// its own bound in sb-vm.
const readyTime = 150 * time.Second

// wire is a descriptor to hand to a child, under the flag of its name.
type wire struct {
	flag string
	file *os.File
}

// child is one of our tools that runs.
type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
	said *lastLines
}

// startChild starts a tool with its manifest and wires. It is in a process group
// of its own, so that a terminal's Ctrl-C reaches nobody by accident, and ends
// when its leash does. ready is closed, or sent an error, when it is ready.
func startChild(name, manifest string, leash *os.File, wires ...wire) (*child, <-chan error, error) {
	path, err := tool(name)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	wires = append(wires, wire{"ready", w}, wire{"leash", leash})
	args := []string{"--manifest", manifest}
	var files []*os.File
	for i, w := range wires {
		args = append(args, fmt.Sprintf("--%s=%d", w.flag, 3+i))
		files = append(files, w.file)
	}
	c := &child{name: name, cmd: exec.Command(path, args...), done: make(chan struct{}), said: &lastLines{}}
	c.cmd.ExtraFiles = files
	c.cmd.Stderr = c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		r.Close()
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, c.awaitReady(r), nil
}

// awaitReady reads the readiness line in the background.
func (c *child) awaitReady(r *os.File) <-chan error {
	result := make(chan error, 1)
	go func() {
		defer r.Close()
		timer := time.AfterFunc(readyTime, func() { c.cmd.Process.Kill() })
		defer timer.Stop()
		err := fd.WaitReady(r, say.Version)
		if err != nil {
			// Its own words say more than the end of a pipe.
			select {
			case <-c.done:
			case <-time.After(5 * time.Second):
				c.cmd.Process.Kill()
				<-c.done
			}
			err = c.failed(err)
		}
		result <- err
	}()
	return result
}

// failed is the error of a child that ended, in its own words.
func (c *child) failed(cause error) error {
	var hints []string
	main := ""
	for _, l := range c.said.lines() {
		l = strings.TrimPrefix(l, c.name+": ")
		if h, ok := strings.CutPrefix(l, "hint: "); ok {
			hints = append(hints, h)
		} else if e, ok := strings.CutPrefix(l, "error: "); ok && main == "" {
			main = e
		}
	}
	err := fmt.Errorf("%s: %s", c.name, main)
	if main == "" {
		err = fmt.Errorf("%s ended: %w", c.name, cause)
	}
	for _, h := range hints {
		err = say.WithHint(err, "%s", h)
	}
	return err
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

// lastLines passes on what a child says to people, and keeps the errors for
// whoever reports its end: those are printed once, there.
type lastLines struct {
	mu   sync.Mutex
	part string
	last []string
}

const maxLastLines = 40

func (l *lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.part + string(b)
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			break
		}
		text = rest
		if strings.Contains(line, ": error: ") || strings.Contains(line, ": hint: ") {
			l.last = append(l.last, line)
			l.last = l.last[max(0, len(l.last)-maxLastLines):]
			continue
		}
		io.WriteString(os.Stderr, say.Safe(line)+"\n")
	}
	l.part = text[max(0, len(text)-4096):]
	return len(b), nil
}

func (l *lastLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last...)
}
