package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// File is a file that is written in the guest at each start, before the command,
// over what is there. Below the home of the command's user it is his, elsewhere
// root's.
type File struct {
	Path string `toml:"path"` // absolute, or ~/ and so on in the user's home
	Text string `toml:"text"`
	Mode string `toml:"mode,omitempty"` // octal, at most 0777; default 0644

	// Keep leaves a file that is there as it is.
	Keep bool `toml:"keep,omitempty"`

	// Merge has Text be a change to a file of settings, as in RFC 7386, whether that
	// is in JSON or, by its name .toml, in TOML.
	Merge bool `toml:"merge,omitempty"`
}

// DefaultMode is that of a file whose mode is not said.
const DefaultMode = 0o644

// Bits are the file's permissions.
func (f File) Bits() (int64, error) {
	if f.Mode == "" {
		return DefaultMode, nil
	}
	n, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil || n > 0o777 {
		return 0, fmt.Errorf("mode %q is none: octal, at most 0777", f.Mode)
	}
	return int64(n), nil
}

// Check says what of a file cannot be.
func (f File) Check() error {
	if path := strings.TrimPrefix(f.Path, "~"); !cleanAbs(path) || path == "/" {
		return fmt.Errorf("%q is neither an absolute path nor one that begins with ~/", f.Path)
	}
	if _, err := f.Bits(); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if f.Keep && f.Merge {
		return fmt.Errorf("%s: keep and merge exclude each other", f.Path)
	}
	var change map[string]any
	if f.Merge && json.Unmarshal([]byte(f.Text), &change) != nil {
		return fmt.Errorf("%s: what is to be merged is no object in JSON", f.Path)
	}
	return nil
}

// Startup is a command that root runs in the guest at each start, in order, after
// the files are written and before the command.
type Startup struct {
	Run Words `toml:"run"`

	// Background does not wait for its end: it stays up as long as the command.
	Background bool `toml:"background,omitempty"`
}

// Check says what of it cannot be.
func (s Startup) Check() error {
	if len(s.Run) == 0 || s.Run[0] == "" {
		return errors.New("run: it names no program")
	}
	return nil
}

// Words are a command: a list of words, or a script for sh.
type Words []string

// UnmarshalTOML reads either form.
func (w *Words) UnmarshalTOML(value any) error {
	*w = nil
	switch v := value.(type) {
	case string:
		if strings.TrimSpace(v) == "" {
			return errors.New("the script is empty")
		}
		*w = Words{"/bin/sh", "-euc", v}
		return nil
	case []any:
		for _, word := range v {
			s, ok := word.(string)
			if !ok {
				return fmt.Errorf("%v is no word of a command", word)
			}
			*w = append(*w, s)
		}
		return nil
	}
	return fmt.Errorf("%v is neither a script nor a list of words", value)
}

// checkProvision is check of what is made ready before the command.
func (r *Run) checkProvision() (key string, err error) {
	for i, f := range r.Files {
		if err := f.Check(); err != nil {
			return "run.file", fmt.Errorf("file %d: %w", i+1, err)
		}
	}
	for i, s := range r.Startup {
		if err := s.Check(); err != nil {
			return "run.startup", fmt.Errorf("startup %d: %w", i+1, err)
		}
	}
	if r.State != "" && !ValidName(r.State) {
		return "run.state", fmt.Errorf("%q is no name of a profile", r.State)
	}
	return "", nil
}
