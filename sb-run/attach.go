package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/lib/session"
)

// attach speaks the guest stream of a machine that somebody else booted.
func attach(args []string) error {
	flags := say.Flags("sb-run attach", "--guest N [--manifest FILE] [-- CMD…]",
		"Runs a command in the machine on whose guest stream it is attached. It waits until the machine is up.")
	guest := flags.Int("guest", -1, "the guest stream: a stream socket (descriptor `N`)")
	file := flags.String("manifest", "", "the sandbox's manifest: [run] says as whom, where and with what variables (`FILE`)")
	ca := flags.String("ca", "", "have the guest trust the certificate in `FILE` first, as sb-broker writes it")
	tty := flags.BoolP("tty", "t", false, "give the command a terminal; the default if stdin and stdout are one")
	noTTY := flags.Bool("no-tty", false, "give the command no terminal")
	screen := flags.String("terminal", "", terminalUsage)
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if *guest < 0 {
		return say.WithHint(say.Usage("sb-run attach needs --guest"), "sb-run pair guest=stream makes one")
	}
	if err := checkTerminal("--terminal", *screen); err != nil {
		return err
	}
	f, err := fd.Take("guest", *guest, fd.Stream)
	if err != nil {
		return err
	}
	if err := fd.CloseRest(); err != nil {
		return err
	}
	m := &manifest.Manifest{}
	if *file != "" {
		if m, err = manifest.Load(*file); err != nil {
			return err
		}
	}
	if flags.NArg() > 0 {
		m.Run.Command = flags.Args()
	}
	if err := checkRun(m); err != nil {
		return err
	}
	c := guestCommand(m)
	if c.TTY, err = terminal(*tty, *noTTY); err != nil {
		return err
	}
	kept, err := beginState(m)
	if err != nil {
		return err
	}
	e, stop := newEnding()
	defer stop()
	catchSIGPIPE()
	certificate, err := readCertificate(*ca)
	if err != nil {
		return err
	}
	err = runIn(e, f, m, c, certificate, kept, *screen == terminalRaw)
	var lost *streamEnd
	if errors.As(err, &lost) {
		return e.instead(err)
	}
	return err
}

// runIn prepares the guest on the stream f, which it takes over, and runs the
// command there. What is kept of its state is kept at the end; nil: nothing is.
func runIn(e *ending, f *os.File, m *manifest.Manifest, c session.Command, certificate []byte, kept *agentState, raw bool) error {
	last := e.ctx
	if kept != nil {
		var done func()
		last, done = e.lasting()
		defer done()
	}
	h, err := openSession(e.ctx, last, f)
	if err != nil {
		return e.instead(err)
	}
	defer h.Close()
	if err := prepareGuest(e.ctx, h, m, certificate, kept); err != nil {
		return err
	}
	err = runCommand(e.ctx, last, h, c, raw)
	if kept != nil {
		kept.keep(last, h)
	}
	return err
}

// guestCommand is the command of a manifest.
func guestCommand(m *manifest.Manifest) session.Command {
	env := map[string]string{}
	maps.Copy(env, m.Run.Env)
	return session.Command{Args: m.Run.Command, Env: env, User: m.Run.User, Workdir: m.Run.Workdir}
}

// streamEnd is the end of the guest stream before that of the command.
type streamEnd struct{ error }

func (e *streamEnd) Unwrap() error { return e.error }

// openSession takes the guest stream, which it takes over, and waits until the
// guest answers. The end of ctx closes it until then, that of last from then on: a
// guest that reads nothing must not be waited for.
func openSession(ctx, last context.Context, f *os.File) (*session.Host, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open the guest stream: %w", err)
	}
	answered := context.AfterFunc(ctx, func() { conn.Close() })
	context.AfterFunc(last, func() { conn.Close() })
	h, err := session.NewHost(conn)
	answered()
	if err != nil {
		conn.Close()
		return nil, &streamEnd{err}
	}
	return h, nil
}
