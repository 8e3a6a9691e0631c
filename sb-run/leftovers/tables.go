package leftovers

import (
	"path"
	"strings"

	"sb/sb-run/gitconfig"
)

// The ranks of what runs a file: what is worst is shown first.
const (
	byGit    = iota // any git command
	byItself        // on entering or opening the directory, on commit, when an agent starts
	asked           // an install, or a command called by its name
)

// A table are files that something runs, by their names in any directory and by the
// directory that they are in. All is in lower case: some file systems pass over it.
type table struct {
	names map[string]string
	begin map[string]string // as names, that begin so
	dirs  []row
}

type row struct {
	name  string   // of a directory, with those above it as far as they matter
	files []string // the names of those in it, with *; nil: all, however deep
	why   string
}

// tables has one for each rank; git's own files are in ofGit.
var tables = map[int]table{
	byItself: {
		names: map[string]string{
			".envrc":                  "direnv runs it on cd",
			".gitattributes":          gitAttributes,
			".gitconfig":              "git runs what it says, where a configuration includes it",
			".devcontainer.json":      editorRuns,
			".dir-locals.el":          editorRuns,
			".exrc":                   editorRuns,
			".nvimrc":                 editorRuns,
			".nvim.lua":               editorRuns,
			".pre-commit-config.yaml": "pre-commit runs it on commit",
			".mcp.json":               startsServers,
			".tool-versions":          "asdf and mise choose programs by it",
			".mise.toml":              miseRuns,
			"mise.toml":               miseRuns,
			"opencode.json":           startsServers,
			"opencode.jsonc":          startsServers,
			"crush.json":              startsServers,
			".crush.json":             startsServers,
			".aider.conf.yml":         "aider runs the commands that it names",
		},
		begin: map[string]string{
			".envrc.":          "direnv runs it on cd",
			"lefthook.":        lefthookRuns,
			".lefthook.":       lefthookRuns,
			"lefthook-local.":  lefthookRuns,
			".lefthook-local.": lefthookRuns,
		},
		dirs: []row{
			{".hg", []string{"hgrc", "hgrc-not-shared", "sharedpath"}, "hg runs what it says"},
			{".jj", []string{"repo", "workspace-config.toml"}, "jj runs what it says"},
			{".jj/repo", []string{"config.toml"}, "jj runs what it says"},
			{".githooks", nil, "git runs it, if it is told to"},
			{".husky", nil, "git runs it, by husky"},
			{".vscode", []string{"tasks.json", "settings.json", "launch.json", "mcp.json"}, editorRuns},
			{".idea", nil, editorRuns},
			{".devcontainer", nil, editorRuns},
			{".zed", []string{"tasks.json", "settings.json", "debug.json"}, editorRuns},
			{".helix", []string{"*.toml"}, editorRuns},
			{".vim", []string{"coc-settings.json"}, editorRuns},
			{".claude", []string{"settings.json", "settings.local.json"}, "Claude Code runs its hooks"},
			{".claude/hooks", nil, "Claude Code runs it, by its hooks"},
			{".cursor", []string{"mcp.json", "hooks.json", "cli.json", "worktrees.json", "environment.json"}, "the editor starts its servers and runs its hooks"},
			{".codex", []string{"config.toml", "hooks.json"}, "Codex starts its servers and runs its hooks"},
			{".codex/rules", nil, "Codex runs unasked what it allows"},
			{".gemini", []string{"settings.json", ".env"}, "Gemini CLI starts its servers"},
			{".gemini/extensions", nil, "Gemini CLI starts its servers"},
			{".qwen", []string{"settings.json"}, startsServers},
			{".roo", []string{"mcp.json"}, startsServers},
			{".kiro/settings", []string{"mcp.json"}, startsServers},
			{".amazonq", []string{"mcp.json"}, startsServers},
			{".junie/mcp", []string{"mcp.json"}, startsServers},
			{".github", []string{"mcp.json"}, startsServers},
			{".github/hooks", nil, "GitHub Copilot CLI runs it"},
			{".opencode/plugin", nil, opencodeRuns},
			{".opencode/plugins", nil, opencodeRuns},
			{".opencode/tool", nil, opencodeRuns},
			{".opencode/tools", nil, opencodeRuns},
			{".pi/extensions", nil, "pi runs it"},
			{".pi", []string{"settings.json"}, "pi runs the packages that it names"},
		},
	},
	asked: {
		names: map[string]string{
			".gitmodules":   "git submodule goes by it",
			"package.json":  "npm install runs its scripts",
			"binding.gyp":   "npm install runs it, by node-gyp",
			".npmrc":        "npm reads it",
			".yarnrc":       "yarn runs its yarn-path",
			".yarnrc.yml":   "yarn runs its yarnPath and plugins",
			".pnpmfile.cjs": "pnpm install runs it",
			".pnpmfile.mjs": "pnpm install runs it",
			"flake.nix":     nixRuns,
			"shell.nix":     nixRuns,
			"devenv.nix":    nixRuns,
			"devbox.json":   "devbox runs it, and direnv where it is told to",
			".sb.toml":      "sb-run reads it",
		},
		dirs: []row{
			{".cargo", []string{"config", "config.toml"}, "cargo runs what it names"},
			{".run", nil, "the editor runs it when it is told to"},
		},
	},
}

const (
	gitAttributes = "git runs filters and diff drivers of its configuration on what it names"
	gitElsewhere  = "git is led to a repository elsewhere by it"
	gitBare       = "git takes its directory for a repository, and reads the configuration there"
	gitSays       = "git runs what it says"
	gitRemote     = "git fetches from where it says"
	startsServers = "coding agents start its servers"
	lefthookRuns  = "git runs it, by lefthook"
	miseRuns      = "mise runs what it says on cd"
	editorRuns    = "the editor may run it"
	opencodeRuns  = "opencode runs it"
	nixRuns       = "nix runs it, and direnv where it is told to"
)

// ofGit are files in a repository's own directory, and the part of each that git may run.
var ofGit = []struct {
	path, why string
	pick      func(text []byte) []string
}{
	{"config", gitSays, gitconfig.Running},
	{"config.worktree", gitSays, gitconfig.Running},
	{"commondir", gitElsewhere, nil},
	{"info/attributes", gitAttributes, attributes},
	{"objects/info/alternates", "git reads objects from where it says", nil},
	{"rebase-merge/git-rebase-todo", "git rebase --continue runs it", execs},
	{"remotes/*", gitRemote, nil},
	{"branches/*", gitRemote, nil},
}

// commands are names that a shell with . in its PATH would take for others.
var commands = []string{"bash", "cat", "cd", "code", "curl", "docker", "git", "go", "grep", "ls", "make", "node", "npm", "npx", "python", "python3", "rm", "sh", "ssh", "sudo", "vim"}

// why is what runs a file by its name's begin or by a directory that it lies in. link is
// set for a link, which may stand in the place of one.
func (t table) why(dir, base string, link bool) string {
	for begin, why := range t.begin {
		if strings.HasPrefix(base, begin) {
			return why
		}
	}
	if !tops.any(dir) && !(link && tops.any(base)) {
		return ""
	}
	for _, d := range t.dirs {
		if link && leadsTo(path.Join(dir, base), d.name) {
			return inPlace + d.why
		}
		if d.has(dir, base) {
			return d.why
		}
	}
	return ""
}

// tops are the first parts of the directories in the tables: most paths have none, and
// are done with.
var tops = func() (s set) {
	s = set{}
	for _, t := range tables {
		for _, d := range t.dirs {
			top, _, _ := strings.Cut(d.name, "/")
			s[top] = true
		}
	}
	return s
}()

type set map[string]bool

// any reports whether a part of the path is in the set.
func (s set) any(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if s[part] {
			return true
		}
	}
	return false
}

// has reports whether a file in dir is one of the row's.
func (d row) has(dir, base string) bool {
	if d.files == nil {
		return within(dir, d.name, true) && !strings.HasSuffix(base, ".sample")
	}
	if !within(dir, d.name, false) {
		return false
	}
	for _, f := range d.files {
		if matches(f, base) {
			return true
		}
	}
	return false
}

const inPlace = "a link in the place of a directory: "

// leadsTo reports whether a path is that of a directory of a row, or of one above it.
func leadsTo(link, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if within(link, name, false) {
			return true
		}
	}
	return false
}

func matches(glob, name string) bool {
	ok, _ := path.Match(glob, name)
	return ok
}
