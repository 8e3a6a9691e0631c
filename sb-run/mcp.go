package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/say"
)

// withMCP is a profile with the MCP servers of the call: what they need is installed
// in its environment, and allowed. The servers are returned too.
func withMCP(p *profile.Profile, names []string) (*profile.Profile, []profile.MCPServer, error) {
	servers, err := p.Servers(names)
	if err != nil {
		return nil, nil, say.Usage("--mcp: %w", err)
	}
	if len(servers) > 0 && p.MCPConfig.Path == "" {
		return nil, nil, say.WithHint(say.Usage("--mcp: the profile %s says no place where an agent of it reads which MCP servers there are", p.Name), "claude and most others say one; [mcp-config] of a profile is that place")
	}
	with := *p
	with.Install, with.Rules.Allow = slices.Clone(p.Install), slices.Clone(p.Rules.Allow)
	for _, s := range servers {
		if s.Install != "" {
			with.Install = append(with.Install, s.Install)
		}
		for _, allow := range s.Allow {
			if !slices.Contains(with.Rules.Allow, allow) {
				with.Rules.Allow = append(with.Rules.Allow, allow)
			}
		}
	}
	return &with, servers, nil
}

// addMCP has the agent's own settings name the servers, beside what is there. Those
// that are known and not in use are taken out: an earlier sandbox may have left them
// in the state.
func addMCP(m *manifest.Manifest, p *profile.Profile, servers []profile.MCPServer) error {
	if p.MCPConfig.Path == "" || len(servers) == 0 && m.Run.State == "" {
		return nil
	}
	all := map[string]any{}
	for _, s := range append(profile.BuiltInMCP(), p.MCPServers...) {
		all[s.Name] = nil
	}
	for _, s := range servers {
		all[s.Name] = render(p.MCPConfig.Form, s)
		for _, name := range slices.Sorted(maps.Keys(s.Env)) {
			if v, ok := strings.CutPrefix(s.Env[name], "{env:"); ok && m.Run.Env[strings.TrimSuffix(v, "}")] == "" {
				say.Warn("the MCP server %s has no %s: the sandbox has no variable %s (--secret gives it one)", s.Name, name, strings.TrimSuffix(v, "}"))
			}
		}
	}
	key := map[string]string{"codex": "mcp_servers", "opencode": "mcp"}[p.MCPConfig.Form]
	text, err := json.Marshal(map[string]any{first(key, "mcpServers"): all})
	if err != nil {
		return fmt.Errorf("write the MCP servers: %w", err)
	}
	m.Run.Files = append(m.Run.Files, manifest.File{Path: p.MCPConfig.Path, Mode: "0600", Merge: true, Text: string(text)})
	return nil
}

// render is a server as an agent's settings have it. It is given the variables by
// which programs find the certificate of sb-broker: agents pass few of their own on.
func render(form string, s profile.MCPServer) map[string]any {
	env := map[string]string{}
	for name := range trustVariables() {
		env[name] = "{env:" + name + "}"
	}
	maps.Copy(env, s.Env)
	args := append([]string{}, s.Command[1:]...)
	switch form {
	case "opencode":
		return map[string]any{"type": "local", "command": s.Command, "environment": env, "enabled": true}
	case "copilot":
		return map[string]any{"type": "local", "command": s.Command[0], "args": args, "env": env, "tools": []string{"*"}}
	}
	return map[string]any{"command": s.Command[0], "args": args, "env": env}
}
