package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sb/lib/manifest"
	"sb/lib/say"
	"sb/lib/session"
)

// checkProvision refuses what cannot reach the guest: its words must fit a frame.
func checkProvision(m *manifest.Manifest) error {
	for _, f := range m.Run.Files {
		if err := checkText(f.Path + f.Text); err != nil {
			return say.Usage("the file %s: it %w", f.Path, err)
		}
	}
	for i := range m.Run.Startup {
		for _, word := range m.Run.Startup[i].Run {
			if err := checkText(word); err != nil {
				return say.Usage("startup %d: a word of it %w", i+1, err)
			}
		}
		text, err := json.Marshal(startupCommand(m, i))
		if err != nil {
			return err
		}
		if len(text) > session.MaxFrame {
			return say.WithHint(say.Usage("startup %d and its variables have %d bytes, at most %d go to the guest", i+1, len(text), session.MaxFrame), "put what is long into a [[file]]")
		}
	}
	return nil
}

// writeFiles writes the files of the manifest in the guest.
func writeFiles(ctx context.Context, h *session.Host, m *manifest.Manifest) error {
	if len(m.Run.Files) == 0 {
		return nil
	}
	return unpackInGuest(ctx, h, m, func(w io.Writer) error {
		out := tar.NewWriter(w)
		for _, f := range m.Run.Files {
			mode, err := f.Bits()
			if err != nil {
				return err
			}
			header := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "~/"), Mode: mode, Size: int64(len(f.Text)), Format: tar.FormatPAX}
			switch {
			case f.Keep:
				header.PAXRecords = map[string]string{session.UnpackHow: session.UnpackKeep}
			case f.Merge:
				header.PAXRecords = map[string]string{session.UnpackHow: session.UnpackMerge}
			}
			if err := out.WriteHeader(header); err != nil {
				return err
			}
			if _, err := io.WriteString(out, f.Text); err != nil {
				return err
			}
		}
		return out.Close()
	})
}

// guestHome is the command about the user's files: his home may be a variable's.
func guestHome(m *manifest.Manifest) session.Command {
	c := session.Command{User: m.Run.User}
	if home := m.Run.Env["HOME"]; strings.HasPrefix(home, "/") {
		c.Env = map[string]string{"HOME": home}
	}
	return c
}

// unpackInGuest has the guest unpack the archive that write writes.
func unpackInGuest(ctx context.Context, h *session.Host, m *manifest.Manifest, write func(io.Writer) error) error {
	c, said := guestHome(m), &tail{}
	c.Unpack = true
	p, err := h.Start(c, io.Discard, said)
	if err != nil {
		return &streamEnd{err}
	}
	written := make(chan error, 1)
	go func() {
		err := write(p)
		written <- errors.Join(err, p.CloseStdin())
	}()
	select {
	case <-p.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	st, err := p.Wait()
	if err != nil {
		return &streamEnd{err}
	}
	for _, l := range said.lines() {
		say.Warn("the guest says: %s", l)
	}
	if err := guestFailed("write files in the guest", st, nil); err != nil {
		return err
	}
	return <-written
}

// startupCommand is the command of a startup: root's, with the variables of the
// command that it comes before.
func startupCommand(m *manifest.Manifest, i int) session.Command {
	c := guestCommand(m)
	for _, users := range []string{"HOME", "USER", "LOGNAME", "SHELL"} {
		delete(c.Env, users)
	}
	c.Args, c.User = m.Run.Startup[i].Run, "root"
	return c
}

// startUp runs what is to run before the command. One that fails is told of, and
// the others are run all the same.
func startUp(ctx context.Context, h *session.Host, m *manifest.Manifest) error {
	for i, s := range m.Run.Startup {
		said := &tail{}
		c := startupCommand(m, i)
		p, err := h.Start(c, said, said)
		if err == nil {
			err = p.CloseStdin()
		}
		if err != nil {
			return &streamEnd{err}
		}
		if s.Background {
			go func() {
				if <-p.Done(); ctx.Err() == nil {
					sayStartup(i, s, p, said)
				}
			}()
			continue
		}
		select {
		case <-p.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := sayStartup(i, s, p, said); err != nil {
			return err
		}
	}
	return nil
}

// sayStartup tells of one that failed; the error is that the stream has ended.
func sayStartup(i int, s manifest.Startup, p *session.Process, said *tail) error {
	st, err := p.Wait()
	switch {
	case err != nil:
		return &streamEnd{err}
	case st.ExitCode() == 0:
		return nil
	}
	how := fmt.Sprintf("ended with %d", st.ExitCode())
	if st.Error != "" {
		how = fmt.Sprintf("did not start: %.500q", st.Error)
	}
	say.Warn("startup %d (%s) %s", i+1, startupName(s), how)
	for _, l := range said.lines() {
		say.Note("  | %s", l)
	}
	return nil
}

// startupName is what one is called: its first line, or its words.
func startupName(s manifest.Startup) string {
	if len(s.Run) == 3 && s.Run[0] == "/bin/sh" && s.Run[1] == "-euc" {
		return stepName(s.Run[2])
	}
	return stepName(strings.Join(s.Run, " "))
}
