package live

import (
	"regexp"
	"strings"
	"testing"
)

const serving = `
mcp = ["own"]
[[mcp-server]]
name = "own"
command = ["own-server", "{workspace}"]
install = '''
# own-server
printf '#!/bin/sh\necho serves "$1" with "$KEY"\n' >/usr/local/bin/own-server
chmod 755 /usr/local/bin/own-server
'''
env.KEY = "{env:KEY}"
allow = ["allowed.example.org"]
[mcp-config]
path = "~/.agent/mcp.json"
[state]
paths = ["~/.agent"]
seed = ["~/.agent/mcp.json"]
[env]
KEY = "a key"
`

// TestMCP: a server of a profile is in its environment, in its agent's settings beside
// what is there, and allowed.
func TestMCP(t *testing.T) {
	t.Parallel()
	k := newKind(t, serving)
	k.put(".agent/mcp.json", `{"theme":"dark","mcpServers":{"mine":{"command":"kept"}}}`)
	r := k.run(`
echo "== user"; id -u
echo "== settings"; stat -c '%U %a' ~/.agent/mcp.json; ls -A / | grep -c mcp
echo "== in them"; node -e 'const s = JSON.parse(require("fs").readFileSync(process.env.HOME + "/.agent/mcp.json")); console.log(s.theme, s.mcpServers.mine.command); const o = s.mcpServers.own; console.log(require("child_process").execFileSync(o.command, o.args, {env: {...o.env, PATH: process.env.PATH}}).toString())'
echo "== allowed"; curl -sS --max-time 20 http://allowed.example.org/x
echo "== denied"; curl -sS --max-time 20 http://denied.example.org/ 2>&1
echo "== end"`)
	r.ok(t)
	image := k.sbRun(imageRef, "--mcp", "own", "--", "true")
	control := k.sbRun(imageRef, "--cpus=1", "--memory=512m", "--", "true")

	check := func(name string, ids []string, ok func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { claim(t, ids...); ok(t) })
	}
	check("the profile is run, as its user", []string{"114", "115"}, func(t *testing.T) { r.says(t, "user", `^1000$`) })
	check("the settings are in the agent's own home, and its own", []string{"116"}, func(t *testing.T) {
		r.says(t, "settings", `^agent 600\n0$`)
		if got, want := r.section("in them"), "dark kept\nserves "+k.work+" with a key"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		r.says(t, "allowed", `served GET /x`)
		r.says(t, "denied", `Could not resolve`)
	})
	check("nothing failed to be written", []string{"117"}, func(t *testing.T) {
		if regexp.MustCompile(`sb-run: (warning|error)|not written|merge`).MatchString(r.stderr) {
			t.Errorf("stderr:\n%s", r.stderr)
		}
	})
	check("an image has none", []string{"118"}, func(t *testing.T) {
		if image.code != 125 || !strings.Contains(image.stderr, "--mcp and --no-state are for profiles") {
			t.Errorf("%d: %s", image.code, image.stderr)
		}
		if control.code != 0 {
			t.Errorf("control: %d: %s", control.code, control.stderr)
		}
	})
}
