package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/say"
	"sb/lib/session"
	"sb/sb-run/state"
)

// agentState is what a sandbox has of its profile's state: it begins with it, and
// what is there at its end is kept.
type agentState struct {
	m     *manifest.Manifest
	spec  profile.State
	store state.Store
	base  *state.Base
}

// stateTime is how long a guest may take to hand its state over.
const stateTime = 5 * time.Minute

// agentStore is where the state of a profile is kept.
func agentStore(name string) (state.Store, error) {
	dir, err := stateDir("agents")
	if err != nil {
		return state.Store{}, err
	}
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return state.Store{}, err
	}
	return state.Store{Dir: dir}, nil
}

// beginState finds the state that the manifest asks for, and seeds it if that was not
// done; nil if it asks for none.
func beginState(m *manifest.Manifest) (*agentState, error) {
	if m.Run.State == "" {
		return nil, nil
	}
	s := &agentState{m: m}
	c, err := loadConfig()
	if err != nil {
		return nil, err
	}
	p, err := c.profiles().Find(m.Run.State)
	if err != nil {
		return nil, fmt.Errorf("the state of %s: %w", m.Run.State, noProfile(c.profiles(), m.Run.State, err))
	}
	s.spec = p.State
	if s.store, err = agentStore(m.Run.State); err == nil {
		s.base, err = s.store.Begin(s.filter(), m.Run.Workdir, s.seeds)
	}
	if err != nil {
		return nil, say.WithHint(fmt.Errorf("the state of %s: %w", m.Run.State, err), "--no-state runs without it; sb-run agents reset %s removes it", m.Run.State)
	}
	return s, nil
}

func (s *agentState) filter() state.Filter {
	leave := profile.Homes(s.spec.Leave)
	return state.Filter{Roots: profile.Homes(s.spec.Paths), Drop: func(name string) bool {
		return state.IsCredential(name) || slices.ContainsFunc(leave, func(l string) bool { return name == l || strings.HasPrefix(name, l+"/") })
	}}
}

// seeds reads the host's own files that the state begins with.
func (s *agentState) seeds(first, here bool) (all []state.Seed, err error) {
	for _, pattern := range s.spec.Seed {
		if project := state.Project(pattern); project && !here || !project && !first {
			continue
		}
		root := s.spec.Root(pattern)
		dir := homePath("~/" + root)
		for _, client := range []string{"claude", "codex"} {
			if root == "."+client { // which a variable of the client's may name
				dir = homePath(signIn(client))
			}
		}
		seeds, left := state.Source{Name: root, Dir: dir}.Take(state.Expand(strings.TrimPrefix(pattern, "~/"), s.m.Run.Workdir))
		for _, why := range left {
			say.Warn("%v", why)
		}
		for _, seed := range seeds {
			if !state.Project(pattern) || seed.IsOf(s.m.Run.Workdir) {
				all = append(all, seed)
			}
		}
	}
	if len(all) > 0 {
		say.Note("the state of %s begins with %d of your files, without what looks like a secret in them (--no-state: without them)", s.m.Run.State, len(all))
	}
	return all, nil
}

// bring has the guest unpack the state.
func (s *agentState) bring(ctx context.Context, h *session.Host) error {
	err := unpackInGuest(ctx, h, s.m, func(w io.Writer) error {
		_, err := s.base.WriteTo(w)
		return err
	})
	if err != nil {
		err = fmt.Errorf("the state of %s: %w", s.m.Run.State, err)
	}
	return err
}

// keep keeps what the guest has now. What fails is told of: the command has ended,
// and its end is what counts.
func (s *agentState) keep(ctx context.Context, h *session.Host) {
	defer s.base.Close()
	run := ctx
	ctx, cancel := context.WithTimeoutCause(run, stateTime, fmt.Errorf("it took more than %v", stateTime))
	defer cancel()
	c := guestHome(s.m)
	c.Pack = &session.Pack{Paths: profile.Homes(s.spec.Paths), Leave: append(state.Credentials(), profile.Homes(s.spec.Leave)...)}
	both, err := s.store.Keep(s.filter(), s.base, func(w io.Writer) error {
		st, err := runInGuest(ctx, h, c, w, io.Discard)
		return guestFailed("hand over the state", st, err)
	})
	if err != nil && run.Err() != nil {
		err = context.Cause(run) // by which the stream ended
	}
	if err != nil {
		say.Warn("the state of %s is not kept, and is as it was before: %v", s.m.Run.State, err)
		return
	}
	if len(both) > 0 {
		say.Warn("another sandbox of %s ended meanwhile, and %d files were changed by both: the newest are kept", s.m.Run.State, len(both))
		for _, name := range both[:min(len(both), 10)] {
			say.Note("  ~/%s", name)
		}
	}
}

// stateSize is how many bytes are kept of a profile's sandboxes.
func stateSize(name string) (int64, error) {
	dir, err := stateDir("agents")
	if err != nil {
		return 0, err
	}
	return state.Store{Dir: filepath.Join(dir, name)}.Size(), nil
}

func agentsReset(args []string) error {
	set, name, err := oneProfile("reset", "Removes what is kept of a profile's sandboxes. The next one begins with the host's own files again.", args)
	if err != nil {
		return err
	}
	if size, err := stateSize(name); err != nil || size == 0 {
		if _, err := set.Find(name); err != nil {
			return noProfile(set, name, err)
		}
		return err
	}
	store, err := agentStore(name)
	if err == nil {
		err = store.Reset()
	}
	if err != nil {
		return fmt.Errorf("reset the state of %s: %w", name, err)
	}
	return nil
}
