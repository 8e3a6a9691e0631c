package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sb/lib/say"
	"sb/lib/session"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// feed passes our stdin on to the command. It is left reading when the command
// has ended: a read of a terminal cannot be called off.
func feed(p *session.Process) {
	in := &input{f: os.Stdin, terminal: term.IsTerminal(int(os.Stdin.Fd()))}
	if in.terminal {
		// A read in the background is an error then, and does not stop what
		// keeps the sandbox.
		signal.Ignore(unix.SIGTTIN)
	}
	io.Copy(p, in)
	if in.err != nil && !errors.Is(in.err, io.EOF) {
		say.Warn("read stdin: %v", in.err)
	}
	p.CloseStdin()
}

// input is stdin. It keeps its error apart from those of the stream.
type input struct {
	f        *os.File
	terminal bool
	err      error
}

// backgroundPoll is how often a terminal is asked whether it is ours again.
// Nothing tells a job that runs already that it came to the foreground.
const backgroundPoll = 500 * time.Millisecond

func (in *input) Read(b []byte) (n int, err error) {
	for {
		n, in.err = in.f.Read(b)
		if !in.terminal || !errors.Is(in.err, syscall.EIO) || foreground(in.f) {
			return n, in.err
		}
		time.Sleep(backgroundPoll)
	}
}

// foreground reports whether a read of the terminal is ours.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}
