package profile

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sb/lib/manifest"
	"sb/lib/rule"
)

//go:embed mcp.toml
var builtinMCP []byte

// MCPServer is a server of the Model Context Protocol, which an agent starts and
// speaks with by its stdin and stdout.
type MCPServer struct {
	Name    string            `toml:"name"`
	Command []string          `toml:"command"` // {workspace} is the working directory
	Env     map[string]string `toml:"env"`     // a value {env:NAME} is a variable of the command
	Install string            `toml:"install"` // a script, as in a profile; "": it is there
	Allow   []string          `toml:"allow"`   // rules
}

// MCPConfig is where an agent reads which servers there are.
type MCPConfig struct {
	Path string `toml:"path"` // "": it takes none
	Form string `toml:"form"` // one of Forms; "": the first
}

// Forms are the ways in which agents write it.
var Forms = []string{"mcpServers", "codex", "copilot", "opencode"}

func (s MCPServer) check() error {
	if !profileName.MatchString(s.Name) {
		return fmt.Errorf("%q is no name: lower case letters, digits, - and _", s.Name)
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		return errors.New("command: it names no program")
	}
	_, err := rule.Load(rule.Source{Origin: "allow", Allow: s.Allow})
	return err
}

func (p *Profile) checkMCP() error {
	for i, s := range p.MCPServers {
		if err := s.check(); err != nil {
			return fmt.Errorf("mcp-server %d: %w", i+1, err)
		}
	}
	if c := p.MCPConfig; c.Path != "" {
		if err := (manifest.File{Path: c.Path}).Check(); err != nil {
			return fmt.Errorf("mcp-config: %w", err)
		}
	}
	if form := p.MCPConfig.Form; form != "" && !slices.Contains(Forms, form) {
		return fmt.Errorf("mcp-config: form: %q is none of %s", form, strings.Join(Forms, ", "))
	}
	if _, err := p.Servers(nil); err != nil {
		return err
	}
	return nil
}

// BuiltInMCP are the servers that are known by their names.
func BuiltInMCP() []MCPServer {
	var known struct {
		Servers []MCPServer `toml:"mcp-server"`
	}
	if err := manifest.Decode("mcp.toml", builtinMCP, &known); err != nil {
		panic(err) // it is compiled in, and a test reads it
	}
	return known.Servers
}

// Servers are those that the profile has, and those of some names, each once. The
// profile's own come before those that are known.
func (p *Profile) Servers(names []string) (all []MCPServer, err error) {
	known := append(slices.Clone(p.MCPServers), BuiltInMCP()...)
	for _, s := range p.MCPServers {
		names = append(names, s.Name)
	}
	for _, name := range append(slices.Clone(p.MCP), names...) {
		name = strings.ToLower(name)
		at := slices.IndexFunc(known, func(s MCPServer) bool { return s.Name == name })
		if at < 0 {
			var there []string
			for _, s := range known {
				there = append(there, s.Name)
			}
			return nil, fmt.Errorf("%q is no MCP server (there is: %s)", name, strings.Join(there, ", "))
		}
		if !slices.ContainsFunc(all, func(s MCPServer) bool { return s.Name == name }) {
			all = append(all, known[at])
		}
	}
	return all, nil
}
