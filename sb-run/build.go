package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/say"
	"sb/lib/session"

	"golang.org/x/sys/unix"
)

// build makes the environment of a profile: an image, by its steps out of another
// one, in a machine of its own that reaches what the profile's sandboxes reach and
// is given no secret and nothing of the user's. sb-image keeps it, and every run
// shares it.
type build struct {
	*ending
	p    *profile.Profile
	base *image
	m    *manifest.Manifest // the machine and its rules
	ref  string             // what it is called in the store

	limit time.Duration // for each step
}

// buildFormat changes when what is made of the same steps does.
const buildFormat = 1

// newBuild says what the environment of p on base would be called: its name has
// everything in it that it is made of.
func newBuild(e *ending, p *profile.Profile, base *image, m *manifest.Manifest) (*build, error) {
	text, err := json.Marshal(struct {
		Format  int
		Base    string
		Install []string
		User    string
	}{buildFormat, base.Digest, p.Install, p.User})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return &build{ending: e, p: p, base: base, m: m, ref: "env:" + p.Name + "-" + hex.EncodeToString(sum[:6]), limit: stepTime}, nil
}

// environment returns it, after making it if it is not there or to be made anew.
func (b *build) environment(anew bool) (*image, error) {
	if !anew {
		if im, err := showImage(b.ending, b.ref); err == nil || b.ended() {
			return im, err
		}
	}
	lock, err := b.lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if !anew { // whoever this waited for may have made it
		if im, err := showImage(b.ending, b.ref); err == nil || b.ended() {
			return im, err
		}
	}
	if err := b.run(); err != nil {
		return nil, err
	}
	return showImage(b.ending, b.ref)
}

// lock has one of several that want it make it.
func (b *build) lock() (*os.File, error) {
	dir, err := stateDir("build")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, strings.TrimPrefix(b.ref, "env:")+".lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		err := lock(f, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if err != unix.EWOULDBLOCK {
			f.Close()
			return nil, fmt.Errorf("lock the build of %s: %w", b.p.Name, err)
		}
		if !said {
			say.Note("another sb-run builds %s: waiting for it", b.p.Name)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-b.ctx.Done():
			f.Close()
			return nil, context.Cause(b.ctx)
		}
	}
}

// run boots the machine and makes the environment in it.
func (b *build) run() error {
	began := time.Now()
	say.Note("%s is built, once: its environment is kept", b.p.Name)
	m := *b.m
	m.Shares, m.Credentials = nil, nil
	m.Run = manifest.Run{User: "root", Workdir: "/"}
	p := &plan{m: &m, name: "build-" + b.p.Name, ephemeral: true}
	found, err := findTools(p.m)
	if err != nil {
		return err
	}
	d, err := newRunDir(p.name)
	if err != nil {
		return err
	}
	r := &runner{ending: b.within(), dir: d, plan: p, tools: found, what: b.make}
	err = r.run()
	if left := d.remove(); left != nil {
		say.Warn("%v", left)
	}
	if b.ended() {
		if err != nil {
			say.Note("the build of %s was ended: nothing of it is kept", b.p.Name)
		}
		return context.Cause(b.ctx)
	}
	if err != nil {
		return b.failed(err)
	}
	say.Note("%s is built, in %v", b.p.Name, time.Since(began).Round(time.Second))
	return nil
}

// failed says that nothing was kept. A step that failed gives its own exit code.
func (b *build) failed(err error) error {
	err = say.WithHint(fmt.Errorf("build %s: %w; nothing of it is kept", b.p.Name, err), "sb-run agents show %s prints its steps", b.p.Name)
	var step *stepFailed
	if errors.As(err, &step) {
		say.Report(os.Stderr, err)
		return say.Exit(step.code)
	}
	return err
}

// make takes the steps, in the machine, and gives sb-image what they left.
func (b *build) make(ctx context.Context, h *session.Host) error {
	if b.p.User != "" {
		user := session.Command{User: agentUser, Prepare: &session.Prepare{MakeUser: b.p.User}}
		if err := b.step(ctx, h, user, &tail{}); err != nil {
			return fmt.Errorf("make the user %s: %w", b.p.User, err)
		}
	}
	for i, script := range b.p.Install {
		name := stepName(script)
		say.Note("  %d/%d %s", i+1, len(b.p.Install), name)
		said := &tail{}
		env := b.base.env()
		err := b.step(ctx, h, session.Command{Args: []string{"/bin/sh", "-euc", script}, Env: env}, said)
		if err != nil {
			for _, l := range said.lines() {
				say.Note("  | %s", l)
			}
			return fmt.Errorf("step %d of %d (%s): %w", i+1, len(b.p.Install), name, err)
		}
	}
	return b.keep(ctx, h)
}

// agentUser is the number of the unprivileged user inside, and of his group.
const agentUser = "1000:1000"

// stepName is what a step is called: its first line, or what a comment there says.
func stepName(script string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(script), "\n")
	first = strings.TrimSpace(strings.TrimLeft(first, "#"))
	if len(first) > 60 {
		first = first[:57] + "…"
	}
	return first
}

// stepTime is how long one step may take.
const stepTime = time.Hour

// stepFailed is a step that ended with a code of its own.
type stepFailed struct{ code int }

func (s *stepFailed) Error() string { return fmt.Sprintf("it ended with %d", s.code) }

// step runs a command of the build to its end.
func (b *build) step(ctx context.Context, h *session.Host, c session.Command, out *tail) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("it took more than %v", b.limit))
	defer cancel()
	st, err := runInGuest(ctx, h, c, out, out)
	switch {
	case err != nil:
		return err
	case st.Error != "":
		return fmt.Errorf("the guest says %.500q", st.Error)
	case st.ExitCode() != 0:
		return &stepFailed{st.ExitCode()}
	}
	return nil
}

// keep has the guest hand over its file system, and sb-image keep it.
func (b *build) keep(ctx context.Context, h *session.Host) error {
	say.Note("  keeping what was made")
	path, err := tool("sb-image")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	added := make(chan error, 1)
	go func() {
		added <- addImage(ctx, path, b.ref, b.base.Digest, r)
		r.Close()
	}()
	st, err := runInGuest(ctx, h, session.Command{Export: true}, w, &tail{})
	w.Close() // sb-image takes no archive that has not come to its end
	theirs := <-added
	switch {
	case err == nil && st.ExitCode() != 0: // before what that made of sb-image's part
		return fmt.Errorf("hand over what was made: the guest says %.500q", st.Error)
	case theirs != nil && !errors.Is(err, context.Canceled):
		return theirs
	}
	return err
}
