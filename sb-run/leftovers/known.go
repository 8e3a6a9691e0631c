package leftovers

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// byName are files that a tool reads in any directory, and what does.
var byName = map[string]string{
	".envrc":                  "direnv runs it on cd",
	".gitmodules":             "git submodule runs update = !command",
	".gitattributes":          "git runs filters and diff drivers of its configuration on what it names",
	".pre-commit-config.yaml": "pre-commit runs it on commit",
	"package.json":            "npm install runs its scripts",
	".npmrc":                  "npm reads it",
	".yarnrc.yml":             "yarn runs its yarnPath and plugins",
	".mcp.json":               "coding agents start its servers",
	".tool-versions":          "asdf and mise choose programs by it",
	".mise.toml":              "mise runs what it says on cd",
	"mise.toml":               "mise runs what it says on cd",
	"opencode.json":           "coding agents start its servers",
	"opencode.jsonc":          "coding agents start its servers",
	".sb.toml":                "sb-run reads it",
}

// byDirectory are directories whose files, of those names or all, something runs.
var byDirectory = []struct {
	dir   string
	files []string // nil: all, however deep
	why   string
}{
	{".git/hooks", nil, "git runs it"},
	{".vscode", []string{"tasks.json", "settings.json", "launch.json", "mcp.json"}, "the editor may run it"},
	{".idea", nil, "the editor may run it"},
	{".devcontainer", nil, "the editor may run it"},
	{".husky", nil, "git runs it, by husky"},
	{".zed", []string{"tasks.json", "settings.json"}, "the editor may run it"},
	{".claude", []string{"settings.json", "settings.local.json"}, "Claude Code runs its hooks"},
	{".claude/hooks", nil, "Claude Code runs it, by its hooks"},
	{".cursor", []string{"mcp.json", "hooks.json"}, "the editor starts its servers and runs its hooks"},
	{".codex", []string{"config.toml", "hooks.json"}, "Codex starts its servers and runs its hooks"},
	{".gemini", []string{"settings.json"}, "Gemini CLI starts its servers"},
	{".github/hooks", nil, "GitHub Copilot CLI runs it"},
	{".opencode/plugin", nil, "opencode runs it"},
	{".opencode/plugins", nil, "opencode runs it"},
	{".opencode/tool", nil, "opencode runs it"},
	{".opencode/tools", nil, "opencode runs it"},
	{".pi/extensions", nil, "pi runs it"},
	{".pi", []string{"settings.json"}, "pi runs the packages that it names"},
}

// commands are names that a shell with . in its PATH would take for others.
var commands = []string{"bash", "cat", "cd", "code", "curl", "docker", "git", "go", "grep", "ls", "make", "node", "npm", "npx", "python", "python3", "rm", "sh", "ssh", "sudo", "vim"}

// known is what runs a file of this name, "" if nothing does.
func known(path string, info fs.FileInfo) string {
	if info.IsDir() {
		return ""
	}
	base, dir := filepath.Base(path), filepath.ToSlash(filepath.Dir(path))
	if why := byName[base]; why != "" {
		return why
	}
	if isMise(base, "/"+dir) {
		return byName["mise.toml"]
	}
	if base == ".git" {
		return "git is led to a repository elsewhere by it"
	}
	if base == "HEAD" && !inGit(dir) {
		return "git takes its directory for a repository, and reads the configuration there"
	}
	if gitDir(dir) && (base == "config" || base == "config.worktree") {
		return "git runs what it says"
	}
	if gitDir(dir) && base == "commondir" {
		return "git is led to a repository elsewhere by it"
	}
	if inGit(dir) && strings.Contains("/"+dir+"/", "/hooks/") {
		if strings.HasSuffix(base, ".sample") {
			return "" // git does not run those
		}
		return "git runs it"
	}
	for _, d := range byDirectory {
		if info.Mode()&fs.ModeSymlink != 0 && within(path, d.dir, false) {
			return "a link in the place of a directory: " + d.why
		}
		if within(dir, d.dir, d.files == nil) && (d.files == nil || slices.Contains(d.files, base)) && !strings.HasSuffix(base, ".sample") {
			return d.why
		}
	}
	if dir == "." && info.Mode()&0o111 != 0 && slices.Contains(commands, base) {
		return "a program called as a common one"
	}
	return ""
}

// isMise tells the further files that mise reads where it reads mise.toml.
func isMise(base, dir string) bool {
	if !strings.HasSuffix(base, ".toml") {
		return false
	}
	of := strings.HasSuffix(dir, "/mise") || strings.HasSuffix(dir, "/.mise") || strings.HasSuffix(dir, "/conf.d")
	return strings.HasPrefix(strings.TrimPrefix(base, "."), "mise.") || of && (strings.HasPrefix(base, "config.") || strings.HasSuffix(dir, "/conf.d"))
}

// inGit reports whether a directory lies in a repository's own.
func inGit(dir string) bool { return strings.Contains("/"+dir+"/", "/.git/") }

// gitDir reports whether it is one of those with a configuration: a repository's,
// a worktree's or a submodule's.
func gitDir(dir string) bool {
	return within(dir, ".git", false) || inGit(dir) && (strings.Contains(dir, "/worktrees/") || strings.Contains(dir, "/modules/"))
}

// within reports whether dir ends in want, or with deep has it anywhere.
func within(dir, want string, deep bool) bool {
	if deep {
		return strings.Contains("/"+dir+"/", "/"+want+"/")
	}
	return strings.HasSuffix("/"+dir, "/"+want)
}

// parts are files of which only something could run: each returns that, a line
// each that begins with its name.
var parts = map[string]func(text []byte) []string{
	"package.json":    npmScripts,
	".gitmodules":     func(t []byte) []string { return gitKeys(t, submoduleKey) },
	".gitattributes":  attributes,
	"config":          func(t []byte) []string { return gitKeys(t, runningKey) },
	"config.worktree": func(t []byte) []string { return gitKeys(t, runningKey) },
}

// part is what picks it, of a file that is one of those: a program may be called config.
func part(path string) func(text []byte) []string {
	base, dir := filepath.Base(path), filepath.ToSlash(filepath.Dir(path))
	if strings.HasPrefix(base, "config") && !gitDir(dir) {
		return nil
	}
	return parts[base]
}

// names are the names that such lines begin with.
func names(lines []string) (all []string) {
	for _, l := range lines {
		name, _, _ := strings.Cut(l, " ")
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// atInstall are the scripts that npm install runs.
var atInstall = []string{"preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare", "prepublish"}

// npmScripts are those of a package.json. One that cannot be read is listed whole.
func npmScripts(text []byte) (found []string) {
	var p struct {
		Scripts map[string]any `json:"scripts"`
	}
	if json.Unmarshal(text, &p) != nil {
		return []string{"unreadable " + string(text)}
	}
	for _, name := range atInstall {
		if script, ok := p.Scripts[name]; ok {
			line, _ := json.Marshal(script)
			found = append(found, name+" "+string(line))
		}
	}
	return found
}

// attributes are lines that name a driver.
func attributes(text []byte) (found []string) {
	for line := range strings.Lines(string(text)) {
		for _, word := range strings.Fields(line) {
			for _, a := range []string{"filter=", "diff=", "merge="} {
				if strings.HasPrefix(word, a) {
					found = append(found, word+" "+line)
				}
			}
		}
	}
	return found
}

// gitKeys are the settings of a file in git's form that pick says could run, with
// their values. Whatever is between quotes or behind a comment counts as text: to
// list too much is no harm.
func gitKeys(text []byte, pick func(section, key, value string) bool) (found []string) {
	section := ""
	joined := strings.ReplaceAll(strings.ReplaceAll(string(text), "\r\n", "\n"), "\\\n", "")
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		for strings.HasPrefix(line, "[") { // a setting may follow on the line
			head, rest, ok := strings.Cut(line[1:], "]")
			if !ok {
				break
			}
			section, line = "", strings.TrimSpace(rest)
			if words := strings.FieldsFunc(head, func(r rune) bool { return strings.ContainsRune(" \t.\"", r) }); len(words) > 0 {
				section = strings.ToLower(words[0])
			}
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		if key != "" && key[0] != '#' && key[0] != ';' && pick(section, key, value) {
			found = append(found, section+"."+key+" "+value)
		}
	}
	return found
}

func submoduleKey(_, key, value string) bool {
	return key == "update" && strings.HasPrefix(strings.Trim(value, `"`), "!")
}

// runningKey reports whether a setting of git's has a program run, or says where
// one is found (git-config(1)).
func runningKey(section, key, value string) bool {
	switch section {
	case "include", "includeif", "alias", "filter", "credential", "pager", "difftool", "mergetool", "browser", "man", "guitool", "trailer", "hook":
		return true
	case "diff":
		return key == "command" || key == "textconv" || key == "external"
	case "merge":
		return key == "driver" || key == "tool"
	case "core":
		return slices.Contains([]string{"fsmonitor", "hookspath", "editor", "pager", "sshcommand", "gitproxy", "askpass", "attributesfile", "worktree", "alternaterefscommand"}, key)
	case "gpg":
		return strings.HasSuffix(key, "program") || strings.HasSuffix(key, "command")
	case "remote":
		return key == "uploadpack" || key == "receivepack" || key == "vcs" || key == "proxy" || strings.Contains(value, "ext::")
	case "url":
		return true
	case "submodule":
		return submoduleKey(section, key, value)
	case "sequence", "interactive", "sendemail", "uploadpack", "receive", "tar", "extensions", "init", "instaweb", "http", "protocol":
		return true
	}
	return false
}

// readFile reads the first of a file, which is not waited for if it has become a
// FIFO, nor followed if it has become a link.
func readFile(root *os.Root, path string) ([]byte, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}
