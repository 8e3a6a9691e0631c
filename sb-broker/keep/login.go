package keep

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// A client's sign-in on this host is read when it is needed, where the client
// keeps it, and written back there in its form when it was refreshed: a token to
// refresh with is good once, and the client must have the next.

// logins are the sign-ins that are known, by the name of the secret.
type logins map[string]*login

// login is one client's.
type login struct {
	client string // its name, for people
	path   string // of its file, "" if it has none on this host
	how    string // how to sign in
	at     endpoint
	parse  func(text []byte) (*tokens, error)
	item   string // of the keychain, on macOS; "": none

	lockDir string // of this client's own lock; "": it has none
}

// tokens are what a sign-in consists of.
type tokens struct {
	access, refresh, account string
	expires                  time.Time // zero: not known
	scopes                   []string
	write                    func(access, refresh, id string, expires time.Time) ([]byte, error)
}

// expiresSoon is how long before its end a token is refreshed.
const expiresSoon = 5 * time.Minute

func (t *tokens) good(now time.Time) bool {
	return t.access != "" && (t.expires.IsZero() || now.Add(expiresSoon).Before(t.expires))
}

// hostLogins finds out where the clients keep their sign-ins. The servers that they
// are refreshed at are verified by the authorities in the files too.
func hostLogins(roots []string) logins {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	claude, codex := os.Getenv("CLAUDE_CONFIG_DIR"), os.Getenv("CODEX_HOME")
	if claude == "" {
		claude = filepath.Join(home, ".claude")
	}
	if codex == "" {
		codex = filepath.Join(home, ".codex")
	}
	roots = slices.Clone(roots)
	for i, file := range roots {
		if rest, ok := strings.CutPrefix(file, "~/"); ok {
			roots[i] = filepath.Join(home, rest)
		}
	}
	found := logins{
		"claude": {client: "Claude Code", path: filepath.Join(claude, ".credentials.json"), how: "claude, and then /login",
			at: claudeEndpoint, parse: parseClaude, item: "Claude Code-credentials", lockDir: claude + ".lock"},
		"codex": {client: "Codex", path: filepath.Join(codex, "auth.json"), how: "codex login",
			at: codexEndpoint, parse: parseCodex},
	}
	for _, l := range found {
		l.at.roots = roots
	}
	return found
}

// accountOf is the sign-in that a secret belongs to.
func accountOf(name string) string { return strings.TrimSuffix(name, "-account") }

// there reports whether somebody is signed in.
func (l *login) there() bool {
	text, _, err := l.load()
	clear(text)
	return err == nil
}

// load reads the sign-in, and says how it is written back.
func (l *login) load() (text []byte, save func([]byte) error, err error) {
	if text, save, err = loadItem(l.item); err == nil {
		return text, save, nil
	}
	real, err := filepath.EvalSymlinks(l.path)
	if err != nil {
		return nil, nil, err
	}
	text, err = os.ReadFile(real)
	return text, func(text []byte) error { return writeFile(real, text) }, err
}

// value is the part of the sign-in that goes by the name, refreshed if need be.
func (l *login) value(ctx context.Context, name string) ([]byte, error) {
	t, err := l.fresh(ctx)
	switch {
	case err != nil:
		return nil, err
	case name != accountOf(name):
		return []byte(t.account), nil
	}
	return []byte(t.access), nil
}

func (l *login) read() (*tokens, func([]byte) error, error) {
	text, save, err := l.load()
	if err != nil {
		return nil, nil, err
	}
	defer clear(text)
	t, err := l.parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("read the sign-in of %s: %w", l.client, err)
	}
	return t, save, nil
}

// fresh returns tokens that are good, after refreshing them under a lock. Who
// waited for the lock finds what another did.
func (l *login) fresh(ctx context.Context) (*tokens, error) {
	t, _, err := l.read()
	if err != nil || t.good(time.Now()) {
		return t, err
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t, save, err := l.read()
	if err != nil || t.good(time.Now()) {
		return t, err
	}
	if t.refresh == "" {
		return nil, l.expired(t, errors.New("it holds nothing to refresh it with"))
	}
	got, err := l.at.refresh(ctx, t)
	if err != nil {
		if time.Now().Before(t.expires) {
			return t, nil // still good for some minutes
		}
		return nil, l.expired(t, err)
	}
	text, err := t.write(got.AccessToken, got.RefreshToken, got.IDToken, got.expires())
	if err == nil {
		err = save(text)
		clear(text)
	}
	if err != nil {
		// The old token to refresh with is used up: this must not pass unseen.
		return nil, say.WithHint(fault{"failed", fmt.Errorf("the sign-in of %s was refreshed, and cannot be written back: %w", l.client, err)}, "sign in again: %s", l.how)
	}
	t, _, err = l.read()
	return t, err
}

func (l *login) expired(t *tokens, why error) error {
	return say.WithHint(fault{"expired", fmt.Errorf("the sign-in of %s has expired (%s): %w", l.client, t.expires.UTC().Format("2006-01-02 15:04 UTC"), why)}, "sign in again: %s", l.how)
}

// staleLock is when a client's lock counts as left behind: its owner touches it
// more often (proper-lockfile, "stale").
const staleLock = 10 * time.Second

// lock has one of us alone refresh a sign-in, and no client at the same time that
// keeps its own lock: a directory, which is made to take it.
func (l *login) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(l.path+".sb-lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the sign-in of %s: %w", l.client, err)
	}
	unlock = func() { f.Close() }
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		if err := wait(ctx); err != nil {
			f.Close()
			return nil, fault{"timeout", fmt.Errorf("lock the sign-in of %s: another refreshes it: %w", l.client, err)}
		}
	}
	if l.lockDir == "" {
		return unlock, nil
	}
	for {
		err := os.Mkdir(l.lockDir, 0o700)
		if err == nil {
			return func() { os.Remove(l.lockDir); f.Close() }, nil
		}
		if st, serr := os.Stat(l.lockDir); !errors.Is(err, os.ErrExist) || serr == nil && time.Since(st.ModTime()) > staleLock {
			return unlock, nil // left behind, or it cannot be had here
		}
		if err := wait(ctx); err != nil {
			f.Close()
			return nil, fault{"timeout", fmt.Errorf("lock the sign-in of %s: the client itself refreshes it: %w", l.client, err)}
		}
	}
}

// wait waits a moment: neither lock can be waited for.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

// parseClaude reads .credentials.json of Claude Code.
func parseClaude(text []byte) (*tokens, error) {
	whole, inner, err := object(text, "claudeAiOauth")
	if err != nil {
		return nil, err
	}
	var v struct {
		AccessToken, RefreshToken string
		ExpiresAt                 int64 // milliseconds
		Scopes                    []string
	}
	if err := json.Unmarshal(whole["claudeAiOauth"], &v); err != nil {
		return nil, errForm
	}
	t := &tokens{access: v.AccessToken, refresh: v.RefreshToken, scopes: v.Scopes}
	if v.ExpiresAt != 0 {
		t.expires = time.UnixMilli(v.ExpiresAt)
	}
	t.write = func(access, refresh, _ string, expires time.Time) ([]byte, error) {
		set(inner, "accessToken", access)
		if refresh != "" {
			set(inner, "refreshToken", refresh)
		}
		inner["expiresAt"], _ = json.Marshal(expires.UnixMilli())
		whole["claudeAiOauth"], _ = json.Marshal(inner)
		return json.Marshal(whole)
	}
	return t, nil
}

// parseCodex reads auth.json of Codex.
func parseCodex(text []byte) (*tokens, error) {
	whole, inner, err := object(text, "tokens")
	if err != nil {
		return nil, err
	}
	var v struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		Account string `json:"account_id"`
	}
	if err := json.Unmarshal(whole["tokens"], &v); err != nil {
		return nil, errForm
	}
	t := &tokens{access: v.Access, refresh: v.Refresh, account: v.Account, expires: jwtExpiry(v.Access)}
	t.write = func(access, refresh, id string, _ time.Time) ([]byte, error) {
		set(inner, "access_token", access)
		if refresh != "" {
			set(inner, "refresh_token", refresh)
		}
		if id != "" {
			set(inner, "id_token", id)
		}
		whole["tokens"], _ = json.Marshal(inner)
		set(whole, "last_refresh", time.Now().UTC().Format(time.RFC3339Nano))
		return json.MarshalIndent(whole, "", "  ")
	}
	return t, nil
}

// errForm says nothing of the text, which is secret.
var errForm = errors.New("its form is not understood: the client may have changed it")

type fields = map[string]json.RawMessage

// object reads an object and one in it, whose other fields are kept as they are.
func object(text []byte, key string) (whole, inner fields, err error) {
	if json.Unmarshal(text, &whole) != nil || whole == nil {
		return nil, nil, errForm
	}
	if json.Unmarshal(whole[key], &inner) != nil || inner == nil {
		return nil, nil, fault{"missing", fmt.Errorf("nobody is signed in: there is no %s in it", key)}
	}
	return whole, inner, nil
}

func set(in fields, key, value string) { in[key], _ = json.Marshal(value) }

// jwtExpiry is when a token says that it ends; zero if it does not say. It is not
// verified: it comes from the user's own file.
func jwtExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	body, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct{ Exp int64 }
	if err != nil || json.Unmarshal(body, &claims) != nil || claims.Exp == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}
