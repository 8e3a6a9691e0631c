package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sb/lib/say"
	"sb/lib/session"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

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

// runCommand runs a command in the guest with our stdin, stdout and stderr,
// until it or ctx ends. It returns the command's exit code as say.Exit makes it,
// or why there is none. last is done when nothing is asked of the guest any more; if
// that is after ctx, the command has ended before this returns. raw is whether terminals are written to unfiltered.
func runCommand(ctx, last context.Context, h *session.Host, c session.Command, raw bool) error {
	out, errs := newOutput(os.Stdout, raw), newOutput(os.Stderr, raw)
	defer sayLeftOut(out, errs) // when the terminal is as it was
	resized := make(chan os.Signal, 1)
	defer close(resized)
	if c.TTY {
		old, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return fmt.Errorf("prepare the terminal: %w", err)
		}
		defer term.Restore(int(os.Stdin.Fd()), old)
		signal.Notify(resized, unix.SIGWINCH)
		defer signal.Stop(resized)
		c.Rows, c.Cols = size()
		describe(c.Env)
	}
	defer closeAll(out, errs)
	p, err := h.Start(c, out, errs)
	if err != nil {
		return &streamEnd{err}
	}
	go feed(p)
	// Not here: a command that does not read its input makes this wait too.
	go func() {
		for range resized {
			p.Resize(size())
		}
	}()
	select {
	case <-p.Done():
	case <-ctx.Done():
		select {
		case <-p.Done(): // at the same time: the command's own end counts
		default:
			finish(last, p, c.TTY)
			return context.Cause(ctx)
		}
	}
	return commandEnd(p, out, errs)
}

// finishTime is how long a command may take to end when it is told to.
const finishTime = 3 * time.Second

// finish has a command end before last does: what it writes is to be kept.
func finish(last context.Context, p *session.Process, tty bool) {
	told := unix.SIGTERM
	if tty {
		told = unix.SIGHUP // shells do not end by the other
	}
	for _, sig := range []unix.Signal{told, unix.SIGKILL} {
		if last.Err() != nil || p.Signal(sig) != nil {
			return
		}
		select {
		case <-p.Done():
			return
		case <-last.Done():
		case <-time.After(finishTime):
		}
	}
}

func commandEnd(p *session.Process, outs ...*output) error {
	st, err := p.Wait()
	for _, o := range outs {
		switch {
		case errors.Is(o.err, syscall.EPIPE): // nobody reads it any more: as in a shell
			return say.Exit(128 + int(syscall.SIGPIPE))
		case errors.Is(o.err, syscall.EIO) && o.terminal: // it was closed; the signal is on its way
			return say.Exit(128 + int(syscall.SIGHUP))
		case o.err != nil:
			return fmt.Errorf("pass the command's output on: %w", o.err)
		}
	}
	if err != nil {
		return &streamEnd{err}
	}
	if st.Error != "" { // it did not start
		// One line, whatever the guest says: what follows a newline would begin as ours do.
		text := say.Safe(st.Error[:min(len(st.Error), maxSaidLine)])
		return say.WithCode(fmt.Errorf("in the guest: %s", text), st.ExitCode())
	}
	return say.Exit(st.ExitCode())
}

// size is that of our terminal, as rows and columns.
func size() (rows, cols uint16) {
	w, h, err := term.GetSize(int(os.Stdin.Fd()))
	if err != nil {
		return 24, 80
	}
	return uint16(h), uint16(w)
}
