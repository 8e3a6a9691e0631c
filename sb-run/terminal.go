package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"sb/lib/say"
	"sb/lib/session"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// fileConn is a connection on f, which it takes over.
func fileConn(f *os.File) (net.Conn, error) {
	defer f.Close()
	return net.FileConn(f)
}

// terminal decides whether the command gets one: if it was asked for, or if both
// ends here are one.
func terminal(want, not bool) (bool, error) {
	in, out := term.IsTerminal(int(os.Stdin.Fd())), term.IsTerminal(int(os.Stdout.Fd()))
	switch {
	case not:
		return false, nil
	case want && !in:
		return false, say.WithHint(say.Usage("--tty: stdin is no terminal"), "leave --tty out, or run it from a terminal")
	}
	return want || in && out, nil
}

// runCommand runs a command in the guest with our stdin, stdout and stderr, and
// returns its exit code. end is closed when the run is to end before.
func runCommand(h *session.Host, c session.Command, end <-chan struct{}) (int, error) {
	restore := func() {}
	if c.TTY {
		rows, cols := size()
		c.Rows, c.Cols = rows, cols
		old, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return 0, err
		}
		restore = func() { term.Restore(int(os.Stdin.Fd()), old) }
	}
	defer restore()
	p, err := h.Start(c, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	go feed(p)
	resized := make(chan os.Signal, 1)
	if c.TTY {
		signal.Notify(resized, unix.SIGWINCH)
		defer signal.Stop(resized)
	}
	for {
		select {
		case <-p.Done():
			return commandEnd(p)
		case <-resized:
			p.Resize(size())
		case <-end:
			return 0, errEnded
		}
	}
}

// errEnded is the end of a run from outside.
var errEnded = errors.New("the run was ended")

func commandEnd(p *session.Process) (int, error) {
	st, err := p.Wait()
	switch {
	case errors.Is(err, syscall.EPIPE):
		return 128 + int(syscall.SIGPIPE), nil // nobody reads our output any more
	case err != nil:
		return 0, err
	case st.Error != "":
		say.Warn("in the guest: %s", st.Error)
	}
	return st.ExitCode(), nil
}

// feed passes stdin on. It is left reading when the command has ended: a read of
// a terminal cannot be called off.
func feed(p *session.Process) {
	io.Copy(p, os.Stdin)
	p.CloseStdin()
}

// size is that of our terminal, as rows and columns.
func size() (rows, cols uint16) {
	w, h, err := term.GetSize(int(os.Stdin.Fd()))
	if err != nil {
		return 24, 80
	}
	return uint16(h), uint16(w)
}
