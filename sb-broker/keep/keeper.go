// Package keep is `sb-broker keep`: it holds the secrets, and hands each to the
// broker when a request needs it.
//
// It sees no byte of a guest. What it hands out are the names that it was started
// with and no others. It dials nothing but the token server of a sign-in, to
// refresh it.
package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/binding"
	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/say"

	"github.com/BurntSushi/toml"
)

// Verbs of `sb-broker keep`, which are those of `sb-run secret`.
var verbs = []say.Verb{
	{Name: "set", Args: "NAME [--stdin]", Text: "keep a secret: ask for it, or read it from stdin", Run: setVerb},
	{Name: "ls", Args: "[--json]", Text: "list the secrets, never their values", Run: listVerb},
	{Name: "check", Args: "[--json] [NAME…]", Text: "read them all, and say which can be", Run: checkVerb},
	{Name: "rm", Args: "NAME…", Text: "forget secrets", Run: removeVerb},
	{Name: "login", Args: "claude|codex", Text: "see that a client's sign-in is here and good", Run: loginVerb},
}

// Main runs `sb-broker keep`: a verb, or the keeper of a sandbox.
func Main(args []string) error {
	hide()
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--secrets") }) {
		return serveMain(args)
	}
	about := "Keeps secrets, and hands them to sb-broker (--secrets=N) while a sandbox runs."
	if command() == binding.SecretVerb {
		about = "Keeps the secrets that --secret gives to sandboxes: in the system's keychain, or in\nencrypted files."
	}
	err := say.Verbs(command(), about, verbs, args)
	var e *say.Error
	if isAnswer := errors.As(err, &e) && e.Err == nil; isAnswer || say.Code(err) == say.CodeOK || command() != binding.SecretVerb {
		return err
	}
	return say.WithCode(err, codeOfRun)
}

// codeOfRun is the exit code of a failure of sb-run's own.
const codeOfRun = 125

// command is how the user called this.
func command() string {
	if os.Args[0] == binding.SecretVerb {
		return binding.SecretVerb
	}
	return "sb-broker keep"
}

// Tool is the tool that the user called, which messages are said to be from.
func Tool() string {
	if command() == binding.SecretVerb {
		tool, _, _ := strings.Cut(binding.SecretVerb, " ")
		return tool
	}
	return "sb-broker"
}

// keeper reads secrets from where they are.
type keeper struct {
	settings binding.Settings
	services *binding.Services
	dir      string // of the store
	keys     keychain
	logins   logins
	given    map[int][]byte // what was read from descriptors: once, for all
	key      unlocked
}

// newKeeper reads the user's settings.
func newKeeper() (*keeper, error) {
	config, err := dirs.Config()
	if err != nil {
		return nil, err
	}
	k := &keeper{services: binding.BuiltIn(), keys: systemKeychain(), given: map[int][]byte{}}
	path := filepath.Join(config, "config.toml")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	// The other tables are sb-run's, which is strict about them all.
	if _, err := toml.Decode(string(text), &k.settings); err != nil {
		return nil, manifest.Explain(path, err)
	}
	if err := k.settings.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	data, err := dirs.Data()
	if err != nil {
		return nil, err
	}
	k.dir, err = dirs.Ensure(filepath.Join(data, "secrets"))
	k.logins = hostLogins(k.settings.Broker.Roots)
	return k, err
}

// readTime bounds the reading of a secret, whatever it is read from.
const readTime = 20 * time.Second

// read returns a secret and where it is. A source that the user wrote down comes
// first, then what `set` kept, then a client's sign-in.
func (k *keeper) read(ctx context.Context, name string) (value []byte, where string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	where, read := k.find(name)
	if read == nil {
		err = say.WithHint(fault{"missing", errors.New("there is none")}, "sb-run secret set %s keeps one", name)
		if other := map[string]string{"anthropic": "claude", "openai": "codex"}[name]; k.logins[other] != nil && k.logins[other].there() {
			err = say.WithHint(err, "%s is signed in on this host: --secret %s uses that", k.logins[other].client, other)
		}
		if l, ok := k.logins[accountOf(name)]; ok {
			err = say.WithHint(fault{"missing", fmt.Errorf("nobody is signed in: %s is not there", l.path)}, "sign in with %s on this host, or keep a token: sb-run secret set %s", l.client, name)
		}
		return nil, "", fmt.Errorf("secret %s: %w", name, err)
	}
	if value, err = read(ctx); err == nil {
		value = trim(value)
		if err = checkValue(value); err != nil {
			clear(value)
		}
	}
	if err != nil {
		return nil, where, fmt.Errorf("secret %s (%s): %w", name, where, err)
	}
	return value, where, nil
}

// find says where a secret is, and how it is read; nil if it is nowhere.
func (k *keeper) find(name string) (where string, read func(context.Context) ([]byte, error)) {
	if s, ok := k.settings.Sources[name]; ok {
		return s.String(), func(ctx context.Context) ([]byte, error) { return k.fromSource(ctx, s) }
	}
	switch k.kept(name) {
	case inKeychain:
		return inKeychain, func(ctx context.Context) ([]byte, error) { return k.keys.get(ctx, name) }
	case inFile:
		return "file " + k.file(name, inFile), func(ctx context.Context) ([]byte, error) { return k.fromFile(ctx, name) }
	}
	if l, ok := k.logins[accountOf(name)]; ok && l.there() {
		return "sign-in of " + l.client, func(ctx context.Context) ([]byte, error) { return l.value(ctx, name) }
	}
	return "", nil
}

// trim takes the end of the line away, which is no part of a secret.
func trim(value []byte) []byte {
	if n := len(value); n > 0 && value[n-1] == '\n' {
		value = value[:n-1]
	}
	if n := len(value); n > 0 && value[n-1] == '\r' {
		value = value[:n-1]
	}
	return value
}

// checkValue refuses what cannot stand in a header field. It says nothing of what
// the value is.
func checkValue(value []byte) error {
	switch {
	case len(value) == 0:
		return fault{"bad-value", errors.New("it is empty")}
	case len(value) > binding.MaxSecret:
		return fault{"bad-value", fmt.Errorf("it has more than %d bytes: that is no key, but perhaps another file", binding.MaxSecret)}
	case len(value) < binding.MinSecret && !bytes.ContainsAny(value, "\r\n"):
		return fault{"bad-value", fmt.Errorf("it has less than %d bytes: too few to be told from other text in an answer, if a server sends it back", binding.MinSecret)}
	}
	for _, c := range value {
		switch {
		case c == '\n' || c == '\r':
			return fault{"bad-value", errors.New("there is a line break in it: it must be one line")}
		case c < ' ' || c > '~':
			return fault{"bad-value", errors.New("there is a byte in it that is no visible ASCII character")}
		}
	}
	if value[0] == ' ' || value[len(value)-1] == ' ' {
		return fault{"bad-value", errors.New("it begins or ends with a blank")}
	}
	return nil
}

// fault is an error with its code on the secrets wire: unknown, missing, locked,
// timeout, failed, expired or bad-value.
type fault struct {
	code string
	err  error
}

func (f fault) Error() string { return f.err.Error() }
func (f fault) Unwrap() error { return f.err }

// codeOf is the code of an error.
func codeOf(err error) string {
	var f fault
	switch {
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "failed"
}
