package main

import (
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
	tty := flags.BoolP("tty", "t", false, "give the command a terminal; the default if stdin and stdout are one")
	noTTY := flags.Bool("no-tty", false, "give the command no terminal")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if *guest < 0 {
		return say.WithHint(say.Usage("sb-run attach needs --guest"), "sb-run pair guest=stream makes one")
	}
	f, err := fd.Take("guest", *guest, fd.Stream)
	if err != nil {
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
	c := guestCommand(m)
	if c.TTY, err = terminal(*tty, *noTTY); err != nil {
		return err
	}
	conn, err := fileConn(f)
	if err != nil {
		return err
	}
	h, err := session.NewHost(conn)
	if err != nil {
		return err
	}
	defer h.Close()
	code, err := runCommand(h, c, nil)
	if err != nil {
		return err
	}
	return say.Exit(code)
}

// guestCommand is the command of a manifest.
func guestCommand(m *manifest.Manifest) session.Command {
	env := map[string]string{}
	for k, v := range m.Run.Env {
		env[k] = v
	}
	if t := os.Getenv("TERM"); t != "" && env["TERM"] == "" {
		env["TERM"] = t
	}
	return session.Command{Args: m.Run.Command, Env: env, User: m.Run.User, Workdir: m.Run.Workdir}
}
