package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/lib/session"
)

// machine is an sb-vm whose guest is this process.
func (s *standIn) machine(ready *os.File) error {
	guest := s.files["guest"]
	conn, err := net.FileConn(guest)
	guest.Close()
	if err != nil {
		return err
	}
	fd.Ready(ready, say.Version)
	died := make(chan error, 1)
	switch {
	case s.will("dies-when-ready"):
		return s.death()
	case s.will("is-silent"):
		return s.wait()
	}
	go s.noteWire("frames")
	go session.Serve(conn, func(c session.Command, sv *session.Served) {
		note(filepath.Join(s.dir, "commands"), c)
		if c.Prepare != nil {
			s.prepare(sv)
			return
		}
		if c.Unpack || c.Pack != nil {
			s.archive(c, sv)
			return
		}
		if c.Export {
			s.export(sv)
			return
		}
		if end, ok := s.guest(c, sv); ok {
			died <- end
		}
	})
	told := make(chan error, 1)
	go func() { told <- s.wait() }()
	select {
	case err := <-died:
		return err
	case err := <-told:
		return err
	}
}

// death is a machine's, with the last lines of its console.
func (s *standIn) death() error {
	err := errors.New("the machine ended: QEMU: signal: killed")
	for n := range 60 {
		err = say.WithHint(err, "console: %d \x1b[31m", n)
	}
	return err
}

// guest runs a command of the host's. Words with @ are about the machine; others
// are run here. ok: the machine ends, with err.
func (s *standIn) guest(c session.Command, sv *session.Served) (err error, ok bool) {
	switch c.Args[0] {
	case "@die":
		return s.death(), true
	case "@poweroff":
		return nil, true
	case "@die-after-exit":
		sv.Exit(session.Status{Code: 7})
		return s.death(), true
	case "@terminal":
		standInTerminal(c, sv)
	case "@unread":
		fmt.Fprintln(sv.Stdout(), "up")
		s.awaitFile("go")
		sv.Exit(session.Status{Code: 5})
	case "@lies":
		sv.Exit(session.Status{Code: 126, Error: "no\nhint: --allow evil.example\x1b[2J" + strings.Repeat("x", 10_000)})
	case "@garbage":
		sv.Stdout().Write([]byte("x"))
		return nil, false // no exit frame
	default:
		standInCommand(c, sv)
	}
	return nil, false
}

// awaitFile waits until a file is beside the stand-in.
func (s *standIn) awaitFile(name string) {
	for {
		if _, err := os.Stat(filepath.Join(s.dir, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// standInTerminal shows what it is told of the terminal, and ends at a q.
func standInTerminal(c session.Command, sv *session.Served) {
	fmt.Fprintf(sv.Stdout(), "tty=%v %dx%d TERM=%s\r\n", c.TTY, c.Rows, c.Cols, c.Env["TERM"])
	for {
		in, err := sv.Input()
		switch {
		case err != nil:
			return
		case in.Rows > 0:
			fmt.Fprintf(sv.Stdout(), "resized %dx%d\r\n", in.Rows, in.Cols)
		case strings.Contains(string(in.Stdin), "q"):
			sv.Exit(session.Status{Code: 9})
			return
		default:
			fmt.Fprintf(sv.Stdout(), "typed %q\r\n", in.Stdin)
		}
	}
}

// standInCommand runs a command here, as the guest would.
func standInCommand(c session.Command, sv *session.Served) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdout, cmd.Stderr = sv.Stdout(), sv.Stderr()
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.WaitDelay = time.Second
	stdin, _ := cmd.StdinPipe()
	if err := cmd.Start(); err != nil {
		code := 126
		if errors.Is(err, exec.ErrNotFound) {
			code = 127
		}
		sv.Exit(session.Status{Code: code, Error: err.Error()})
		return
	}
	go func() {
		defer stdin.Close()
		for {
			in, err := sv.Input()
			if err != nil {
				cmd.Process.Kill() // the host is gone
				return
			}
			if in.EOF {
				stdin.Close()
			}
			if in.Signal != 0 {
				cmd.Process.Signal(in.Signal)
			}
			stdin.Write(in.Stdin)
		}
	}()
	cmd.Wait()
	st := session.Status{Code: cmd.ProcessState.ExitCode()}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		st = session.Status{Signal: int(ws.Signal())}
	}
	sv.Exit(st)
}
