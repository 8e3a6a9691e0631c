package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/binding"
	"sb/lib/say"

	"golang.org/x/term"
)

// confirmSecrets asks the user about each secret and host that a file asks for,
// once: the answer holds for that file's place and for the binding as it is now.
// Where nobody can be asked, nothing is given.
func confirmSecrets(o *options, credentials []binding.Binding) error {
	place, err := filepath.Abs(o.target)
	if err == nil {
		place, err = filepath.EvalSymlinks(place)
	}
	if err != nil {
		return err
	}
	state, err := stateDir("confirmed")
	if err != nil {
		return err
	}
	for _, b := range credentials {
		for _, host := range b.Hosts {
			file := filepath.Join(state, pairDigest(place, b, host))
			if _, err := os.Lstat(file); err == nil {
				continue
			} else if !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("read what was confirmed: %w", err)
			}
			if err := confirm(o, b, host); err != nil {
				return err
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return fmt.Errorf("remember what was confirmed: %w", err)
			}
		}
	}
	return nil
}

// pairDigest stands for a secret and a host, by the file in that place and by the
// way in which the credential is used.
func pairDigest(place string, b binding.Binding, host string) string {
	b.Hosts, b.Placeholder = []string{host}, ""
	text, _ := json.Marshal(struct {
		Place string
		binding.Binding
	}{place, b})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func confirm(o *options, b binding.Binding, host string) error {
	pair := fmt.Sprintf("%s asks for the secret %s, to be sent to %s", o.target, b.Secret, host)
	if o.noInput || !term.IsTerminal(int(os.Stdin.Fd())) {
		why := "stdin is no terminal to ask at"
		if o.noInput {
			why = "--no-input"
		}
		return say.WithHint(fmt.Errorf("%s, which nobody has confirmed (%s)", pair, why),
			"run it once on a terminal and answer yes, or name a profile or an image with --secret %s", b.Secret)
	}
	fmt.Fprintf(os.Stderr, "%s,\n%s. Allow it? [y/N] ", say.Safe(pair), say.Safe(described(b)))
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); !slices.Contains([]string{"y", "yes"}, answer) {
		return fmt.Errorf("%s, which was not allowed", pair)
	}
	return nil
}

// described is how a binding uses a secret.
func described(b binding.Binding) string {
	text := fmt.Sprintf("in %s as %q", b.Header, b.Format)
	if len(b.Methods) > 0 {
		text += ", methods " + strings.Join(b.Methods, " ")
	}
	if len(b.Paths) > 0 {
		text += ", paths " + strings.Join(b.Paths, " ")
	}
	if len(b.DeniedPaths) > 0 {
		text += ", not paths " + strings.Join(b.DeniedPaths, " ")
	}
	if b.GraphQL != "" {
		text += ", for queries about " + b.GraphQL
	}
	if b.Websocket {
		text += ", for websockets too"
	}
	if b.Inject == "always" {
		text += ", in every request, asked for or not"
	}
	return text
}
