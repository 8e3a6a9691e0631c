package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"sb/lib/fd"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/lib/session"
)

// takeGiven takes the descriptors that the configuration reads secrets from, those
// that are open: which are needed is not known yet, and the keeper says what is
// missing.
func takeGiven(c *config) (given []givenFD) {
	taken := map[int]bool{}
	take := func(n int) {
		if n < 0 || taken[n] {
			return
		}
		taken[n] = true
		if f, err := fd.Take("secret", n, fd.Input); err == nil {
			given = append(given, givenFD{n, f})
		}
	}
	take(c.Store.Key.FD())
	for _, s := range c.Sources {
		take(s.FD())
	}
	return given
}

// prepare has the guest trust the broker's certificate, and write what of the
// user's configuration holds placeholders, before its command. A broker that was
// started again has another certificate.
func (r *runner) prepare(s *sandbox, h *session.Host) error {
	if s.broker == nil {
		return prepareGuest(r.ctx, h, r.plan.m, nil, r.state)
	}
	select {
	case certificate := <-s.broker.trusted:
		if err := prepareGuest(r.ctx, h, r.plan.m, certificate, r.state); err != nil {
			return err
		}
	case <-time.After(partReadyTime):
		return errors.New("sb-broker did not hand over its certificate")
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	go func() {
		for {
			select {
			case certificate := <-s.broker.trusted:
				if err := trustInGuest(r.ctx, h, r.plan.m, certificate); err != nil && !r.ended() {
					say.Warn("have the guest trust the new sb-broker: %v", err)
				}
			case <-r.ctx.Done():
				return
			}
		}
	}()
	return nil
}

// prepareGuest prepares the guest, if there is something to prepare, and waits
// until that is done.
func prepareGuest(ctx context.Context, h *session.Host, m *manifest.Manifest, certificate []byte, s *agentState) error {
	if len(certificate) > 0 || m.Run.MakeUser != "" || len(m.Run.Links) > 0 {
		if err := trustInGuest(ctx, h, m, certificate); err != nil {
			return err
		}
	}
	if s != nil {
		if err := s.bring(ctx, h); err != nil {
			return err
		}
	}
	if err := writeFiles(ctx, h, m); err != nil {
		return err
	}
	if err := makeClone(ctx, h, m); err != nil {
		return err
	}
	return startUp(ctx, h, m)
}

// trustInGuest has the guest do what comes before any file, and again when there is
// another certificate.
func trustInGuest(ctx context.Context, h *session.Host, m *manifest.Manifest, certificate []byte) error {
	st, err := runInGuest(ctx, h, session.Command{User: m.Run.User, Prepare: &session.Prepare{MakeUser: m.Run.MakeUser, Links: m.Run.Links, Trust: string(certificate)}}, io.Discard, io.Discard)
	return guestFailed("prepare the guest", st, err)
}

// guestFailed is why something was not done in the guest.
func guestFailed(what string, st session.Status, err error) error {
	switch {
	case err != nil || st.ExitCode() == 0:
		return err
	case st.Error == "":
		return fmt.Errorf("%s: it ended with %d", what, st.ExitCode())
	}
	return fmt.Errorf("%s: it says %.500q", what, st.Error)
}

// runInGuest does something in the guest, without input, to its end.
func runInGuest(ctx context.Context, h *session.Host, c session.Command, out, errs io.Writer) (session.Status, error) {
	p, err := h.Start(c, out, errs)
	if err == nil && c.Prepare == nil && !c.Export && c.Pack == nil {
		err = p.CloseStdin()
	}
	if err != nil {
		return session.Status{}, &streamEnd{err}
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return session.Status{}, context.Cause(ctx)
	}
	st, err := p.Wait()
	if err != nil {
		err = &streamEnd{err}
	}
	return st, err
}

// readCertificate reads a certificate of a broker's; nil if no file is named.
func readCertificate(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCertificate+1))
	if err == nil {
		err = checkCertificate(text)
	}
	if err != nil {
		return nil, fmt.Errorf("--ca: %s: %w", file, err)
	}
	return text, nil
}
