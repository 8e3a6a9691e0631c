// Package profile reads profiles: kinds of sandboxes by their names, as
// sb-run claude. A profile is a TOML file; some are built in, and one of the
// user's own with the same name takes a built-in one's place.
package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/say"
)

// Profile is what a kind of sandbox is made of and how it runs. What a call of
// sb-run says beside it is added: a profile is a floor, and its denies stay.
type Profile struct {
	Name string `toml:"-"`
	From string `toml:"-"` // the file that it was read from; "" if it is built in

	About string `toml:"about"` // one line, for lists

	// Image is what it runs in: of several, the first that this host can make.
	Image []string `toml:"image"`

	// Install are scripts that make the environment out of the image, as root, each
	// run by sh -eu. What they leave is kept and shared by all runs. The first line
	// of a script, if it is a comment, says what the step does.
	Install []string `toml:"install"`

	// User is the name that the unprivileged user inside gets if the image has none
	// of the number 1000; "": the image's own user, as for any image. He may use
	// sudo, if that is there.
	User string `toml:"user"`

	Command []string          `toml:"command"`
	Env     map[string]string `toml:"env"`

	// Files are written at each start, and then Startup is run, before the command.
	Files   []manifest.File    `toml:"file"`
	Startup []manifest.Startup `toml:"startup"`

	State State `toml:"state"`

	// MCP are names of MCP servers, MCPServers others; MCPConfig is where its agent
	// reads of them.
	MCP        []string    `toml:"mcp"`
	MCPServers []MCPServer `toml:"mcp-server"`
	MCPConfig  MCPConfig   `toml:"mcp-config"`

	Rules   manifest.Rules `toml:"rules"`
	Network Network        `toml:"network"`

	Workspace Workspace `toml:"workspace"`

	// Instructions are for the agent, in a clone: a user's own tree is not written to.
	Instructions manifest.Instructions `toml:"instructions"`

	// Secrets are given as by --secret. Those of TrySecrets are where the user keeps
	// them; the first that is there counts.
	Secrets    []string `toml:"secrets"`
	TrySecrets []string `toml:"try-secrets"`
}

// Network is what a profile, and the user's configuration over it, may choose of
// the network.
type Network struct {
	ECH manifest.ECH `toml:"ech"`
}

// userName is what useradd(8) takes everywhere.
var userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,30}$`)

// profileName is a word that is no path and no flag.
var profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,40}$`)

// Check says what of a profile cannot be.
func (p *Profile) Check() error {
	if len(p.Image) == 0 || slices.Contains(p.Image, "") {
		return errors.New("image: it names no image")
	}
	if p.User != "" && !userName.MatchString(p.User) {
		return fmt.Errorf("user: %q is no name of a user", p.User)
	}
	if p.User == "root" {
		return errors.New("user: root is not unprivileged; leave it out for the image's own user")
	}
	for i, script := range p.Install {
		if strings.TrimSpace(script) == "" {
			return fmt.Errorf("install: step %d is empty", i+1)
		}
	}
	for name := range p.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("env: %q is no name of a variable", name)
		}
	}
	if err := p.Workspace.Check(); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if err := p.State.check(); err != nil {
		return err
	}
	if err := p.checkMCP(); err != nil {
		return err
	}
	for i, f := range p.Files {
		if err := f.Check(); err != nil {
			return fmt.Errorf("file %d: %w", i+1, err)
		}
	}
	for i, s := range p.Startup {
		if err := s.Check(); err != nil {
			return fmt.Errorf("startup %d: %w", i+1, err)
		}
	}
	if err := p.Instructions.Check(); err != nil {
		return fmt.Errorf("instructions: %w", err)
	}
	_, err := rule.Load(rule.Source{Origin: "rules", Allow: p.Rules.Allow, Deny: p.Rules.Deny})
	return err
}

// Set is the profiles that there are: the user's, over those built in.
type Set struct {
	own string // the directory of the user's; "": he has none
}

// Open takes the profiles of a configuration directory.
func Open(config string) Set { return Set{filepath.Join(config, "agents")} }

// Names are the names of all, sorted.
func (s Set) Names() ([]string, error) {
	all := map[string]bool{}
	for _, at := range s.places() {
		files, err := fs.Glob(at.files, "*.toml")
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if name := strings.TrimSuffix(f, ".toml"); profileName.MatchString(name) {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// ErrUnknown is the error about a name that no profile has.
var ErrUnknown = errors.New("there is no such profile")

// Find reads the profile of that name.
func (s Set) Find(name string) (*Profile, error) {
	text, from, err := s.Text(name)
	if err != nil {
		return nil, err
	}
	p, err := Parse(name, from, text)
	if err == nil && from != "" {
		p.From = from
	}
	return p, err
}

// Text is the text of the profile of that name, and its file; "" if it is built in.
func (s Set) Text(name string) (text []byte, from string, err error) {
	if !profileName.MatchString(name) {
		return nil, "", ErrUnknown
	}
	for _, at := range s.places() {
		text, err := fs.ReadFile(at.files, name+".toml")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if at.dir != "" {
			from = path.Join(at.dir, name+".toml")
		}
		if err != nil {
			return nil, from, fmt.Errorf("read the profile %s: %w", name, err)
		}
		return text, from, nil
	}
	return nil, "", ErrUnknown
}

// Parse reads a profile; from is what its errors name, or "" for a built-in one.
func Parse(name, from string, text []byte) (*Profile, error) {
	if from == "" {
		from = "the built-in profile " + name
	}
	p := &Profile{Name: name}
	if err := manifest.Decode(from, text, p); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, say.WithHint(fmt.Errorf("%s: %w", from, err), "sb-run agents edit %s opens it", name)
	}
	return p, nil
}

// File is where the user's own profile of that name lies, or would.
func (s Set) File(name string) string { return filepath.Join(s.own, name+".toml") }

// IsName says whether a profile may have that name.
func IsName(name string) bool { return profileName.MatchString(name) }
