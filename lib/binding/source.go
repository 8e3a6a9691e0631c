package binding

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Settings is what config.toml says of secrets. The keeper and sb-run read it.
type Settings struct {
	Bindings []Binding         `toml:"binding"`
	Sources  map[string]Source `toml:"source"` // where the secret of a name is, if not in the store
	Store    Store             `toml:"store"`
	Broker   Servers           `toml:"broker"`
}

// Servers is what servers are verified by: those that requests go to, and those that
// sign-ins are refreshed at.
type Servers struct {
	Roots []string `toml:"roots"` // files of authorities, besides the system's; ~/ is the home
}

// Store is where `set` keeps secrets.
type Store struct {
	Kind string `toml:"kind"` // keychain, file or "": the keychain if there is one
	Key  Source `toml:"key"`  // of the file: an age identity, or a passphrase
}

// Check says what is wrong with the settings, and brings the bindings to their
// canonical form.
func (s *Settings) Check() error {
	for i := range s.Bindings {
		b := &s.Bindings[i]
		if err := b.Check(); err != nil {
			return err
		}
		if b.Placeholder != "" {
			return fmt.Errorf("binding of %s: placeholder: it is random for each run, and not to be written", b.Secret)
		}
	}
	for name := range s.Sources {
		if !ValidSecret(name) {
			return fmt.Errorf("source: %q is no name of a secret", name)
		}
	}
	for _, file := range s.Broker.Roots {
		if !filepath.IsAbs(file) && !strings.HasPrefix(file, "~/") {
			return fmt.Errorf("broker.roots: %q is not an absolute path", file)
		}
	}
	if !slices.Contains([]string{"", "keychain", "file"}, s.Store.Kind) {
		return fmt.Errorf("store.kind: %q is neither keychain nor file", s.Store.Kind)
	}
	return nil
}

// SecretVerb is the name (argv[0]) under which sb-run runs `sb-broker keep`, which then
// speaks of itself by it and fails with sb-run's exit code.
const SecretVerb = "sb-run secret"

// Source says where a value is: env:VARIABLE, file:PATH, fd:N, or cmd: and the
// words of a command, whose first line of output it is. In TOML it is a string,
// whose command is split at blanks, or an array that has one word in each element.
type Source struct {
	Kind  string   // env, file, fd or cmd; "": no source
	Words []string // one, but for cmd
}

// UnmarshalTOML reads a source.
func (s *Source) UnmarshalTOML(v any) error {
	var words []string
	switch v := v.(type) {
	case string:
		kind, rest, _ := strings.Cut(v, ":")
		if words = []string{v}; kind == "cmd" {
			words = append([]string{"cmd:"}, strings.Fields(rest)...)
		}
	case []any:
		for _, w := range v {
			text, ok := w.(string)
			if !ok {
				return errors.New("a word of a source is text")
			}
			words = append(words, text)
		}
	}
	if len(words) == 0 {
		return errSource
	}
	kind, first, ok := strings.Cut(words[0], ":")
	if first != "" {
		words[0] = first
	} else {
		words = words[1:]
	}
	*s = Source{kind, words}
	if !ok {
		return errSource
	}
	return s.check()
}

// errSource does not say what is there: it may be the secret itself.
var errSource = errors.New("it is no source: env:VARIABLE, file:PATH, fd:N, or cmd:PROGRAM and its words")

func (s *Source) check() error {
	switch {
	case !slices.Contains([]string{"env", "file", "fd", "cmd"}, s.Kind):
		return errSource
	case len(s.Words) == 0 || s.Words[0] == "" || len(s.Words) > 1 && s.Kind != "cmd":
		return fmt.Errorf("%s: one word follows, no more and no less", s.Kind)
	case s.Kind == "env" && !IsVariable(s.Words[0]):
		return errors.New("env: a name of a variable follows")
	case s.Kind == "file" && !filepath.IsAbs(s.Words[0]) && !strings.HasPrefix(s.Words[0], "~/"):
		return errors.New("file: an absolute path follows, or one below ~/: what is read must not depend on where sb-run is called")
	case s.Kind == "fd" && s.FD() < 0:
		return errors.New("fd: the number of a descriptor follows, between 3 and 255")
	}
	return nil
}

// FD is the number of a descriptor, -1 of a source that is none.
func (s Source) FD() int {
	if n, err := strconv.Atoi(strings.Join(s.Words, "")); s.Kind == "fd" && err == nil && n > 2 && n < 256 {
		return n
	}
	return -1
}

// String is the source in words, without the arguments of a command: they may
// say more than others should read.
func (s Source) String() string {
	if s.Kind == "" {
		return ""
	}
	return s.Kind + ":" + s.Words[0]
}
