package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/say"
	"sb/lib/session"
	"sb/sb-run/repo"
	"sb/sb-run/work"
)

// cloneSource is where the guest sees what it clones.
const cloneSource = "/run/sb/source"

var (
	//go:embed clone.sh
	cloneScript string
	//go:embed work.sh
	workScript string
)

// addWorkspace shares the workspace, or has the guest clone the repository that it is in.
func addWorkspace(m *manifest.Manifest, o *options, c *config, p *profile.Profile) error {
	s := manifest.Share{Host: o.workspace, ReadOnly: o.clone}
	if err := setHost(&s, o.shareHome); err != nil {
		return fmt.Errorf("--workspace: %w", err)
	}
	s.Guest, m.Run.Workdir, o.workspace = s.Host, s.Host, s.Host
	if o.clone {
		return addClone(m, o, c, p)
	}
	guardWorkspace(&s, o.choices.Join(p.Workspace, c.Workspace))
	m.Shares = append(m.Shares, s)
	tellGit(s.Host, o.mounts)
	if p.Instructions.Text != "" {
		say.Note("the instructions of %s (%s) are not written into a tree of yours: --clone gives the sandbox one of its own, with them", o.target, p.Instructions.File)
	}
	return nil
}

func addClone(m *manifest.Manifest, o *options, c *config, p *profile.Profile) error {
	if o.choices.Any() {
		return say.Usage("--protect, --no-protect, --hide and --private are about a workspace that is shared, and with --clone none is")
	}
	r, err := repo.Find(o.workspace)
	if err != nil {
		return say.WithHint(fmt.Errorf("--clone: %s: %w", o.workspace, err), "without --clone the directory itself is shared")
	}
	source := r.Common
	if r.Empty {
		source = r.Top
	}
	for _, dir := range []string{r.Top, source} {
		if err := setHost(&manifest.Share{Host: dir, ReadOnly: true}, false); err != nil {
			return fmt.Errorf("--clone: %w", err)
		}
	}
	hide := p.Workspace.Join(c.Workspace).Hide
	s := manifest.Share{Host: source, Guest: cloneSource, ReadOnly: true, Hidden: hideFromClone(r)}
	if r.Empty {
		s.Hidden = append(s.Hidden, hide...)
	} else if len(hide) > 0 {
		say.Warn("%s is to be hidden: what is committed of it is in the clone all the same", strings.Join(hide, ", "))
	}
	m.Shares = append(m.Shares, s)
	m.Run.Clone = &manifest.Clone{Source: cloneSource, Dir: r.Top, Copy: r.Empty, Branch: r.Branch, Commit: r.Commit, Format: r.Format,
		Origin: r.Origin, Name: r.Name, Email: r.Email, Instructions: p.Instructions}
	sayClone(r)
	return nil
}

// sayClone says what the guest has, and what it has not.
func sayClone(r *repo.Repo) {
	switch {
	case r.Empty:
		say.Note("%s has no commit to clone: its files are copied, and nothing that happens to them changes yours", r.Top)
	case r.Branch == "":
		say.Note("the sandbox works in a clone of %s at %.12s: what is not committed is not in it, and yours does not change", r.Top, r.Commit)
	default:
		say.Note("the sandbox works in a clone of %s at %s: what is not committed is not in it, and yours does not change", r.Top, r.Branch)
	}
	if r.Secret {
		say.Note("the address of its origin holds a credential, which is left out: --secret gives one without handing it over")
	}
}

// cloneEnv is what the scripts are told.
func cloneEnv(m *manifest.Manifest) map[string]string {
	c, isCopy := m.Run.Clone, ""
	if c.Copy {
		isCopy = "yes"
	}
	env := map[string]string{"SB_SOURCE": c.Source, "SB_DIR": c.Dir, "SB_COPY": isCopy, "SB_BRANCH": c.Branch, "SB_COMMIT": c.Commit, "SB_FORMAT": c.Format,
		"SB_ORIGIN": c.Origin, "SB_NAME": c.Name, "SB_EMAIL": c.Email, "SB_FILE": c.Instructions.File, "SB_TEXT": c.Instructions.Text}
	for _, name := range []string{"PATH", "HOME"} {
		if v := m.Run.Env[name]; v != "" {
			env[name] = v
		}
	}
	return env
}

// makeClone has the guest make the clone, before its command.
func makeClone(ctx context.Context, h *session.Host, m *manifest.Manifest) error {
	if m.Run.Clone == nil {
		return nil
	}
	env := cloneEnv(m)
	place := `mkdir -p "$SB_DIR" && chown "$SB_USER" "$SB_DIR"`
	env["SB_USER"] = first(m.Run.User, "root")
	for _, c := range []session.Command{
		{Args: []string{"/bin/sh", "-euc", place}, Env: env},
		{Args: []string{"/bin/sh", "-c", cloneScript}, Env: env, User: m.Run.User},
	} {
		said, errs := &tail{}, &tail{}
		st, err := runInGuest(ctx, h, c, said, errs)
		if err != nil {
			return err
		}
		for _, l := range said.lines() {
			say.Note("in the clone: %s", l) // the guest's words
		}
		if st.Error != "" || st.ExitCode() != 0 {
			why := strings.Join(append(errs.lines(), st.Error), "; ")
			return fmt.Errorf("clone %s in the guest: %.1000s", m.Run.Clone.Dir, strings.TrimSuffix(why, "; "))
		}
	}
	return nil
}

// cloned is the repository that the guest has cloned, as it is on the host.
func cloned(m *manifest.Manifest) (*repo.Repo, error) {
	for _, s := range m.Shares {
		if s.Guest == m.Run.Clone.Source {
			if m.Run.Clone.Copy {
				return repo.Find(s.Host)
			}
			r, err := repo.At(s.Host)
			if err == nil {
				r.Commit = m.Run.Clone.Commit // of a linked worktree, it may be another one
			}
			return r, err
		}
	}
	return nil, fmt.Errorf("no share is mounted at %s", m.Run.Clone.Source)
}

// keepWork keeps what the clone has in it that the host's repository has not. What goes
// wrong here is said; the command has ended as it did.
func (r *runner) keepWork(ctx context.Context, h *session.Host) {
	m := r.plan.m
	if m.Run.Clone == nil {
		return
	}
	n, err := takeWork(ctx, h, m, r.before)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err != nil:
		say.Warn("the work in the clone is not kept: %v", err)
	case n == 0:
		say.Note("the clone has no commit that is new, and nothing of it is kept")
	default:
		say.Note("the work is kept (%s): sb-run fetch %s brings it into your repository", count(n, "branch", "branches"), m.Name)
	}
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// commitTime is how long the guest may take to commit what is not.
const commitTime = 10 * time.Minute

// commitAll has the guest commit what is not. It may do something else, or nothing.
func commitAll(ctx context.Context, h *session.Host, c session.Command, most time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the guest took more than %v for it", most))
	defer cancel()
	said := &tail{}
	st, err := runInGuest(ctx, h, c, io.Discard, said)
	if err == nil && st.ExitCode() != 0 {
		err = fmt.Errorf("the guest says %.300q", strings.Join(said.lines(), "; "))
	}
	return err
}

// takeWork has git upload-pack run in the guest and keeps what it says, once that is
// found to be in order.
func takeWork(ctx context.Context, h *session.Host, m *manifest.Manifest, before *repo.Repo) (int, error) {
	dir, err := stateDir("work")
	if err != nil {
		return 0, err
	}
	env := cloneEnv(m)
	if err := commitAll(ctx, h, session.Command{Args: []string{"/bin/sh", "-c", workScript}, Env: env, User: m.Run.User}, commitTime); err != nil {
		if lost := (*streamEnd)(nil); ctx.Err() != nil || errors.As(err, &lost) {
			return 0, err
		}
		say.Warn("what is not committed in the clone is not kept: %v", err)
	}
	said := &tail{}
	near, conn := net.Pipe()
	defer near.Close()
	defer conn.Close()
	p, err := h.Start(session.Command{Args: []string{"git", "-c", "safe.directory=*", "upload-pack", "--strict", m.Run.Clone.Dir + "/.git"}, Env: env, User: m.Run.User}, conn, said)
	if err != nil {
		return 0, err
	}
	go func() {
		io.Copy(p, conn)
		p.CloseStdin()
	}()
	go func() {
		<-p.Done()
		conn.Close()
	}()
	n, err := work.Dir(dir).Keep(ctx, m.Name, before, near)
	if err != nil {
		if l := said.lines(); len(l) > 0 {
			err = errors.Join(err, fmt.Errorf("the guest says %.300q", strings.Join(l, "; ")))
		}
	}
	return n, err
}
