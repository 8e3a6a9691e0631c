package keep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"sb/lib/say"

	"github.com/zalando/go-keyring"
)

// service is what our entries of the keychain are filed under.
const service = "sb"

// keychainTime is how long the keychain may take. A locked one asks the user to
// unlock it, and would wait for that without end.
const keychainTime = 10 * time.Second

// keychain is the system's.
type keychain struct {
	there func() error // why it cannot be used
	load  func(service, name string) (string, error)
	save  func(service, name, value string) error
	drop  func(service, name string) error
	limit time.Duration
}

var errNoKeychain = errors.New("this session has no keychain")

// noKeychain is what can be done then.
const noKeychain = "call it in a session that has one (gnome-keyring, KWallet), or keep the secret in a file: kind = \"file\" under [store] of config.toml, and sb-run secret set"

func systemKeychain() keychain {
	return keychain{keychainThere, keyring.Get, keyring.Set, keyring.Delete, keychainTime}
}

// keychainThere looks for the session bus before anything is asked of it: the
// library would start one.
func keychainThere() error {
	if runtime.GOOS != "linux" || os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus")); err == nil && os.Getenv("XDG_RUNTIME_DIR") != "" {
		return nil
	}
	return errNoKeychain
}

func (c keychain) get(ctx context.Context, name string) ([]byte, error) {
	return c.ask(ctx, func() ([]byte, error) {
		text, err := c.load(service, name)
		return []byte(text), err
	})
}

func (c keychain) set(ctx context.Context, name string, value []byte) error {
	_, err := c.ask(ctx, func() ([]byte, error) { return nil, c.save(service, name, string(value)) })
	return err
}

func (c keychain) remove(ctx context.Context, name string) error {
	_, err := c.ask(ctx, func() ([]byte, error) { return nil, c.drop(service, name) })
	return err
}

// ask does something with the keychain, and words its errors.
func (c keychain) ask(ctx context.Context, do func() ([]byte, error)) ([]byte, error) {
	if err := c.there(); err != nil {
		return nil, say.WithHint(fault{"failed", err}, noKeychain)
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	value, err := bounded(ctx, do)
	switch {
	case err == nil:
		return value, nil
	case codeOf(err) == "timeout":
		return nil, say.WithHint(fault{"locked", fmt.Errorf("the keychain did not answer within %v: it is locked, or asks for a permission", c.limit)},
			"unlock it, or answer its question, and try again")
	case errors.Is(err, keyring.ErrNotFound):
		return nil, fault{"missing", errors.New("it is not in the keychain any more")}
	case errors.Is(err, keyring.ErrSetDataTooBig):
		return nil, fault{"bad-value", errors.New("it is too long for the keychain")}
	}
	switch text := err.Error(); {
	case strings.Contains(text, "unlock"):
		return nil, say.WithHint(fault{"locked", errors.New("the keychain is locked")}, "unlock it and try again")
	case strings.Contains(text, "ServiceUnknown"), strings.Contains(text, "not provided by any .service files"):
		return nil, say.WithHint(fault{"failed", errNoKeychain}, noKeychain)
	}
	return nil, say.WithHint(fault{"failed", fmt.Errorf("the keychain: %w", err)}, noKeychain)
}
