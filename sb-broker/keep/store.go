package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"sb/lib/binding"
	"sb/lib/dirs"
	"sb/lib/say"

	"filippo.io/age"
)

// Where `set` has kept a secret: which of these files there is. That of a secret
// in the keychain is empty; keychains cannot be listed.
const (
	inKeychain = "keychain"
	inFile     = "age"
)

func (k *keeper) file(name, kind string) string { return filepath.Join(k.dir, name+"."+kind) }

// kept says where a secret is kept, "" if it is not.
func (k *keeper) kept(name string) string {
	for _, kind := range []string{inKeychain, inFile} {
		if _, err := os.Lstat(k.file(name, kind)); err == nil {
			return kind
		}
	}
	return ""
}

// keptNames are the names of the secrets that are kept.
func (k *keeper) keptNames() (names []string, err error) {
	entries, err := os.ReadDir(k.dir)
	for _, e := range entries {
		name, kind, _ := cutLast(e.Name())
		if (kind == inKeychain || kind == inFile) && binding.ValidSecret(name) {
			names = append(names, name)
		}
	}
	return names, err
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// keep keeps a secret, in the place of one of that name, and says where.
func (k *keeper) keep(ctx context.Context, name string, value []byte) (kind string, err error) {
	kind, err = inKeychain, errNoKeychain
	if k.settings.Store.Kind != "file" {
		if err = k.keys.set(ctx, name, value); err == nil {
			err = writeFile(k.file(name, inKeychain), nil)
		}
	}
	if errors.Is(err, errNoKeychain) && k.settings.Store.Kind != "keychain" {
		kind = inFile
		var text []byte
		if text, err = k.encrypt(ctx, value); err == nil {
			err = writeFile(k.file(name, inFile), text)
		}
	}
	if err != nil {
		return "", fmt.Errorf("keep the secret %s: %w", name, err)
	}
	if kind == inKeychain {
		os.Remove(k.file(name, inFile))
	} else if _, err := os.Lstat(k.file(name, inKeychain)); err == nil {
		return kind, k.forget(ctx, name, inKeychain)
	}
	return kind, nil
}

// forget removes a secret from where it is kept.
func (k *keeper) forget(ctx context.Context, name, kind string) error {
	if kind == inKeychain {
		if err := k.keys.remove(ctx, name); err != nil && codeOf(err) != "missing" {
			return fmt.Errorf("forget the secret %s: %w", name, err)
		}
	}
	if err := os.Remove(k.file(name, kind)); err != nil {
		return fmt.Errorf("forget the secret %s: %w", name, err)
	}
	return nil
}

// writeFile writes a file in full or not at all.
func writeFile(path string, text []byte) error { return write(path, text, os.Rename) }

// writeNew does so only if there is none of that name: else the error is ErrExist.
func writeNew(path string, text []byte) error { return write(path, text, os.Link) }

func write(path string, text []byte, place func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return place(f.Name(), path)
}

// unlocked is the key of the store's files, read once.
type unlocked struct {
	once sync.Once
	id   age.Identity
	to   age.Recipient
	err  error
}

// identity returns the key, after making one if the user's is a passphrase that
// opens none yet.
func (k *keeper) identity(ctx context.Context) (age.Identity, age.Recipient, error) {
	k.key.once.Do(func() { k.key.id, k.key.to, k.key.err = k.unlock(ctx) })
	return k.key.id, k.key.to, k.key.err
}

func (k *keeper) unlock(ctx context.Context) (age.Identity, age.Recipient, error) {
	if k.settings.Store.Key.Kind == "" {
		return nil, nil, unknownKey(k.dir)
	}
	value, err := k.fromSource(ctx, k.settings.Store.Key)
	if err != nil {
		return nil, nil, fault{"locked", fmt.Errorf("the store's key (%s): %w", k.settings.Store.Key, err)}
	}
	defer clear(value)
	if !bytes.Contains(value, []byte("AGE-SECRET-KEY-")) {
		return k.byPassphrase(string(trim(value)))
	}
	return parseIdentity(value)
}

// unknownKey says what a user without a keychain has to do once.
func unknownKey(dir string) error {
	at, _ := dirs.Config()
	err := say.WithHint(fault{"locked", fmt.Errorf("the key of the files in %s is not known", dir)},
		"make one, once: mkdir -p ~/.config; (umask 077; openssl rand -hex 32 >~/.config/sb-key)")
	err = say.WithHint(err, `and say where it is: mkdir -p %s; printf '[store]\nkey = "file:~/.config/sb-key"\n' >>%s`, at, filepath.Join(at, "config.toml"))
	return say.WithHint(err, "it may also be what age-keygen made, or env:VARIABLE, fd:N or cmd:PROGRAM")
}

func parseIdentity(text []byte) (age.Identity, age.Recipient, error) {
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil || len(ids) == 0 {
		return nil, nil, fault{"locked", errors.New("the store's key is no age identity")} // the error may quote it
	}
	switch id := ids[0].(type) {
	case *age.X25519Identity:
		return id, id.Recipient(), nil
	case *age.HybridIdentity:
		return id, id.Recipient(), nil
	}
	return nil, nil, fault{"locked", errors.New("the store's key is an age identity of a kind that is not known here")}
}

// byPassphrase opens the identity that lies beside the secrets under a
// passphrase: only that is slow, and once.
func (k *keeper) byPassphrase(passphrase string) (age.Identity, age.Recipient, error) {
	path := filepath.Join(k.dir, "identity")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		id, to, made := newIdentity(path, passphrase)
		if !errors.Is(made, os.ErrExist) {
			return id, to, made
		}
		text, err = os.ReadFile(path) // another has made one meanwhile: what that one kept must stay open
	}
	if err != nil {
		return nil, nil, err
	}
	by, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, nil, fault{"locked", fmt.Errorf("the store's key: %w", err)}
	}
	if text, err = decrypt(text, by); err != nil {
		return nil, nil, say.WithHint(fault{"locked", fmt.Errorf("open %s: the passphrase is another one", path)},
			"give store.key the one that the first secret was kept with; if it is lost, remove %s and keep the secrets anew", k.dir)
	}
	defer clear(text)
	return parseIdentity(text)
}

func newIdentity(path, passphrase string) (age.Identity, age.Recipient, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, nil, err
	}
	by, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, nil, fault{"locked", fmt.Errorf("the store's key: %w", err)}
	}
	text, err := encrypt([]byte(id.String()+"\n"), by)
	if err == nil {
		err = writeNew(path, text)
	}
	return id, id.Recipient(), err
}

// fromFile reads a secret from its file.
func (k *keeper) fromFile(ctx context.Context, name string) ([]byte, error) {
	text, err := os.ReadFile(k.file(name, inFile))
	if err != nil {
		return nil, err
	}
	id, _, err := k.identity(ctx)
	if err != nil {
		return nil, err
	}
	value, err := decrypt(text, id)
	if err != nil {
		return nil, fault{"locked", errors.New("the store's key is not the one that it was kept with")}
	}
	return value, nil
}

func (k *keeper) encrypt(ctx context.Context, value []byte) ([]byte, error) {
	_, to, err := k.identity(ctx)
	if err != nil {
		return nil, err
	}
	return encrypt(value, to)
}

func encrypt(value []byte, to age.Recipient) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err == nil {
		_, err = w.Write(value)
		if err == nil {
			err = w.Close()
		}
	}
	return out.Bytes(), err
}

func decrypt(text []byte, id age.Identity) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(text), id)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, most))
}
