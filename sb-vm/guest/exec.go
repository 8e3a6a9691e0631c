//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"sb/lib/session"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// outputGrace is how long output is still waited for when a command has ended
// but something that it left behind holds its output open.
const outputGrace = 500 * time.Millisecond

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// run runs one command of the host's to its end.
func (p *processes) run(c session.Command, sv *session.Served) {
	if own := ownWork(c, sv); own != nil {
		st := session.Status{}
		if err := own(); err != nil {
			st = session.Status{Code: 1, Error: err.Error()}
		}
		sv.Exit(st)
		return
	}
	r, err := p.begin(c, sv)
	if err != nil {
		st := session.Status{Code: 126, Error: err.Error()}
		if errors.Is(err, fs.ErrNotExist) {
			st.Code = 127
		}
		sv.Exit(st)
		return
	}
	go r.input(sv)
	ws := <-r.end
	r.drain()
	st := session.Status{Code: ws.ExitStatus()}
	if ws.Signaled() {
		st.Signal = int(ws.Signal())
	}
	sv.Exit(st)
}

// ownWork is what the guest itself is to do; nil: run a command.
func ownWork(c session.Command, sv *session.Served) func() error {
	switch {
	case c.Prepare != nil:
		return func() error { return prepare(*c.Prepare, c.User) }
	case c.Export:
		return func() error { return exportRoot(sv.Stdout()) }
	case c.Unpack:
		return func() error { return unpack(c, &stdin{sv: sv}, sv.Stderr()) }
	case c.Pack != nil:
		return func() error { return pack(c, sv.Stdout()) }
	}
	return nil
}

// running is a command and the host's side of its input and output.
type running struct {
	*child
	stdin  *os.File // the terminal, if there is one
	tty    bool
	outs   []*os.File
	copied sync.WaitGroup
}

func (p *processes) begin(c session.Command, sv *session.Served) (*running, error) {
	u, err := findUser(c.User)
	if err != nil {
		return nil, err
	}
	env := environment(c, u)
	args := c.Args
	if len(args) == 0 {
		args = []string{u.shell}
	}
	path, err := lookPath(args[0], env["PATH"], c.Workdir)
	if err != nil {
		return nil, err
	}
	attr := &os.ProcAttr{Dir: c.Workdir, Env: envList(env), Sys: &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups},
	}}
	if attr.Dir == "" {
		attr.Dir = "/"
	}
	if st, err := os.Stat(attr.Dir); err != nil {
		return nil, fmt.Errorf("enter the working directory: %v", err) // no %w: the command is not what is missing
	} else if !st.IsDir() {
		return nil, fmt.Errorf("working directory %s: not a directory", attr.Dir)
	}
	if c.TTY {
		return p.beginTTY(c, sv, path, args, attr, u)
	}
	return p.beginPipes(sv, path, args, attr)
}

func (p *processes) beginPipes(sv *session.Served, path string, args []string, attr *os.ProcAttr) (*running, error) {
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	errR, errW, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	// The command may open /dev/stdout again, whatever its user is.
	for _, f := range []*os.File{inR, outW, errW} {
		f.Chown(int(attr.Sys.Credential.Uid), int(attr.Sys.Credential.Gid))
	}
	attr.Files = []*os.File{inR, outW, errW}
	c, err := p.start(path, args, attr)
	for _, f := range attr.Files {
		f.Close()
	}
	if err != nil {
		inW.Close()
		outR.Close()
		errR.Close()
		return nil, err
	}
	r := &running{child: c, stdin: inW, outs: []*os.File{outR, errR}}
	r.output(outR, sv.Stdout())
	r.output(errR, sv.Stderr())
	return r, nil
}

func (p *processes) beginTTY(c session.Command, sv *session.Served, path string, args []string, attr *os.ProcAttr, u user) (*running, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer slave.Close()
	pty.Setsize(master, &pty.Winsize{Rows: c.Rows, Cols: c.Cols})
	slave.Chown(int(u.uid), -1)
	attr.Files = []*os.File{slave, slave, slave}
	attr.Sys.Setctty = true
	ch, err := p.start(path, args, attr)
	if err != nil {
		master.Close()
		return nil, err
	}
	r := &running{child: ch, stdin: master, tty: true, outs: []*os.File{master}}
	r.output(master, sv.Stdout())
	return r, nil
}

func (r *running) output(from *os.File, to io.Writer) {
	r.copied.Go(func() { io.Copy(to, from) })
}

// drain waits for the rest of the output.
func (r *running) drain() {
	done := make(chan struct{})
	go func() { r.copied.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(outputGrace):
	}
	for _, f := range r.outs {
		f.Close()
	}
	<-done
}

// input passes on what the host sends. When the host is gone, so is the command.
func (r *running) input(sv *session.Served) {
	// A command that does not read must not keep the host's signals waiting.
	stdin := make(chan []byte, 64)
	go r.feed(stdin)
	defer close(stdin)
	for {
		in, err := sv.Input()
		switch {
		case err != nil:
			unix.Kill(-r.pid, unix.SIGHUP)
			time.AfterFunc(2*time.Second, func() { unix.Kill(-r.pid, unix.SIGKILL) })
			return
		case in.Stdin != nil:
			stdin <- append([]byte(nil), in.Stdin...)
		case in.EOF:
			stdin <- nil
		case in.Signal != 0:
			unix.Kill(-r.pid, in.Signal)
		case r.tty:
			pty.Setsize(r.stdin, &pty.Winsize{Rows: in.Rows, Cols: in.Cols})
		}
	}
}

// feed writes the command's input; nil is its end.
func (r *running) feed(stdin <-chan []byte) {
	for b := range stdin {
		switch {
		case b != nil:
			r.stdin.Write(b)
		case r.tty:
			r.stdin.Write([]byte{4}) // ^D, as typed
		default:
			r.stdin.Close()
		}
	}
}

// environment is what the command sees: the host's words over what follows from
// the user.
func environment(c session.Command, u user) map[string]string {
	env := map[string]string{"PATH": defaultPath, "HOME": u.home, "USER": u.name, "LOGNAME": u.name, "SHELL": u.shell}
	if u.name == "" {
		delete(env, "USER")
		delete(env, "LOGNAME")
	}
	maps.Copy(env, c.Env)
	return env
}

func envList(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// lookPath finds a program as execvp does.
func lookPath(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join("/", dir, name)
		}
		return name, executable(name)
	}
	denied := error(nil)
	for _, d := range filepath.SplitList(path) {
		full := filepath.Join(d, name)
		if err := executable(full); err == nil {
			return full, nil
		} else if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("%s: command not found (%w)", name, fs.ErrNotExist)
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case st.IsDir() || st.Mode()&0o111 == 0:
		return &os.PathError{Op: "exec", Path: path, Err: fs.ErrPermission}
	}
	return nil
}
