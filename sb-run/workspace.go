package main

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/say"
	"sb/sb-run/undo"
)

// addShares shares the workspace, at its own path, or has it cloned, and what the call mounts.
func addShares(m *manifest.Manifest, o *options, c *config, p *profile.Profile, isProfile bool) error {
	if o.workspace == "" && isProfile {
		o.workspace = "."
	}
	if o.clone && o.workspace == "" {
		return say.WithHint(say.Usage("--clone: an image has no workspace of its own"), "-w DIR names one")
	}
	if o.workspace != "" {
		if err := addWorkspace(m, o, c, p); err != nil {
			return err
		}
		addGitFile(m)
		if isProfile {
			m.Run.Links = map[string]string{"/workspace": o.workspace}
		}
	} else if o.choices.Any() {
		return say.WithHint(say.Usage("--protect, --no-protect, --hide and --private are about a workspace, and this sandbox has none"), "name one with --workspace DIR")
	}
	choices := o.choices.Join(p.Workspace, c.Workspace)
	for i := range o.mounts {
		if s := &o.mounts[i]; !s.ReadOnly && !s.Copy {
			guardMount(s, m.Shares, choices)
		}
	}
	m.Shares = append(m.Shares, o.mounts...)
	for i := range m.Shares {
		keep.Hide(&m.Shares[i], c.secretFiles()...)
	}
	return arrange(m.Shares)
}

// secretFiles are the files that the configuration says hold a secret or the key of
// the others. Which sandboxes use one makes no difference to who may read it.
func (c *config) secretFiles() (files []string) {
	for _, s := range append(slices.Collect(maps.Values(c.Sources)), c.Store.Key) {
		if s.Kind == "file" {
			files = append(files, homePath(s.Words[0]))
		}
	}
	slices.Sort(files)
	return files
}

// guardMount keeps the guest from changing by a mount what it cannot change in the
// workspace, and what programs of the host run by themselves in any directory.
func guardMount(s *manifest.Share, workspace []manifest.Share, w profile.Workspace) {
	for _, ws := range workspace {
		if !strings.HasPrefix(ws.Host+"/", s.Host+"/") && !strings.HasPrefix(s.Host+"/", ws.Host+"/") {
			continue
		}
		for _, pattern := range slices.Concat(ws.Protected, ws.Shadowed) {
			rest, whole := below(pattern, ws.Host, s.Host)
			s.ReadOnly = s.ReadOnly || whole
			if rest != "" && !(rest == pattern && slices.Contains(ws.Shadowed, pattern)) { // that is shadowed here too
				s.Protected = append(s.Protected, rest)
			}
		}
		for _, pattern := range ws.Hidden {
			rest, whole := below(pattern, ws.Host, s.Host)
			if whole {
				rest = "*"
			}
			if rest != "" {
				s.Hidden = append(s.Hidden, rest)
			}
		}
	}
	if !w.NoProtect && runtime.GOOS != "darwin" {
		guardPaths(s)
	}
	slices.Sort(s.Protected)
	s.Protected = slices.Compact(s.Protected)
}

// guarded is a path of the workspace that a program of the host acts on by itself
// when its user enters or opens the directory, or works in it as always.
type guarded struct {
	path, why string
	own       bool // the guest can change it for itself: it is shadowed
}

// guardedPaths are protected in every workspace, whether they exist or not. What
// only runs when it is called by its name (a Makefile, package.json, the source) is
// not among them, for that is what the guest is there to write; nor is .husky,
// which installing packages writes.
var guardedPaths = []guarded{
	{"/.git/config", "git runs what core.fsmonitor, core.pager, filter.*, alias.* and others name", true},
	{"/.git/config.lock", "what git makes the configuration of", true},
	{"/.git/config.worktree", "as .git/config", true},
	{"/.git/config.worktree.lock", "as .git/config.lock", true},
	{"/.git/hooks", "git runs the programs in it", true},
	{"/.git/commondir", "leads git to another configuration and other hooks", false},
	{"/.git/modules/*/config", "as .git/config: git status looks into submodules", true},
	{"/.git/modules/*/config.lock", "as .git/config.lock", true},
	{"/.git/modules/*/hooks", "as .git/hooks", true},
	{"/.git/modules/*/commondir", "as .git/commondir", false},
	{"/.git/modules/*/*/config", "as .git/modules/*/config: a submodule is called as its path, which may have a slash", true},
	{"/.git/modules/*/*/config.lock", "as .git/config.lock", true},
	{"/.git/modules/*/*/hooks", "as .git/hooks", true},
	{"/.git/modules/*/*/commondir", "as .git/commondir", false},
	{"/.git/worktrees/*/commondir", "as .git/commondir, for a worktree elsewhere", true},
	{"/.git/worktrees/*/config.worktree", "as .git/config, for a worktree elsewhere", true},
	{"/.git/worktrees/*/config.worktree.lock", "as .git/config.lock", true},
	{"/.git/remotes", "git pushes to where a file in it says, and runs the hooks there", true},
	{"/.git/branches", "as .git/remotes", true},
	{"/.git/objects/info/alternates", "git takes objects from where it says, and makes them the repository's", false},
	{"/HEAD", "git would take the directory itself for a repository, and its file config for the configuration", false},
	{"/.hg/hgrc", "Mercurial runs the hooks and aliases that it names", false},
	{"/.hg/hgrc-not-shared", "as .hg/hgrc", false},
	{"/.jj/repo/config.toml", "Jujutsu runs the programs that it names", false},
	{acceptMade, "sb-run accept makes in it what it then moves to .git/config", false},
	{undo.Made, "sb-run undo restore makes in it what it then moves to any of these", false},
	{".sb.toml", "sb-run goes by it in the directory and below", false},
	{".envrc", "direnv runs it on entering its directory", false},
	{".envrc.*", "a .envrc reads them", false},
	{"mise.toml", "mise runs its hooks on entering the directory", false},
	{".mise.toml", "as mise.toml", false},
	{"mise.*.toml", "as mise.toml: who trusts that one trusts all of its directory", false},
	{".mise.*.toml", "as mise.*.toml", false},
	{"/.mise", "as mise.*.toml", false},
	{"/mise/config.toml", "as mise.*.toml", false},
	{"/mise/config.*.toml", "as mise.*.toml", false},
	{"/mise/conf.d", "as mise.*.toml", false},
	{"/.config/mise.toml", "as mise.*.toml", false},
	{"/.config/mise.*.toml", "as mise.*.toml", false},
	{"/.config/mise", "as mise.*.toml", false},
	{"/.vscode/tasks.json", "VS Code runs tasks on opening the folder", false},
	{"/.vscode/settings.json", "VS Code starts the programs that it names", false},
	{"/.vscode/launch.json", "VS Code runs what it names when F5 is pressed", false},
	{"/.vscode/mcp.json", "VS Code starts the servers that it names", false},
	{"/.idea", "JetBrains' editors run its startup tasks and run configurations", false},
	{"/.zed/tasks.json", "Zed runs its tasks by a key", false},
	{"/.zed/settings.json", "Zed starts the language servers that it names", false},
	{"/.zed/debug.json", "as .vscode/launch.json", false},
	{"/.run", "JetBrains' editors take run configurations from it", false},
	{"/.helix/languages.toml", "Helix starts the language servers that it names", false},
	{"/.helix/config.toml", "Helix runs the commands that it binds to keys", false},
	{"/.vim/coc-settings.json", "coc.nvim starts the language servers that it names", false},
	{"/.mcp.json", "agents start the servers that it names", false},
	{"/.claude/settings.json", "Claude Code runs its hooks", false},
	{"/.claude/settings.local.json", "as .claude/settings.json", false},
	{"/.claude/hooks", "the programs that those hooks usually are", false},
	{"/.cursor/mcp.json", "as .mcp.json", false},
	{"/.cursor/hooks.json", "Cursor runs its hooks", false},
	{"/.codex/config.toml", "Codex starts the servers that it names", false},
	{"/.codex/hooks.json", "Codex runs its hooks", false},
	{"/.codex/rules", "Codex runs without a question what they allow", false},
	{"/.cursor/cli.json", "Cursor's command line runs without a question what it allows", false},
	{"/.cursor/worktrees.json", "Cursor runs its commands in a new worktree", false},
	{"/.cursor/environment.json", "Cursor runs its commands at the start", false},
	{"/.gemini/settings.json", "Gemini CLI starts the servers that it names", false},
	{"/.gemini/extensions", "as .gemini/settings.json", false},
	{"/.gemini/.env", "Gemini CLI takes its environment from it", false},
	{"/.qwen/settings.json", "as .gemini/settings.json", false},
	{"/.roo/mcp.json", "as .mcp.json", false},
	{"/.kiro/settings/mcp.json", "as .mcp.json", false},
	{"/.amazonq/mcp.json", "as .mcp.json", false},
	{"/.junie/mcp/mcp.json", "as .mcp.json", false},
	{"/crush.json", "as .mcp.json", false},
	{"/.crush.json", "as .mcp.json", false},
	{"/.aider.conf.yml", "aider runs the commands that it names", false},
	{"/.github/mcp.json", "as .mcp.json", false},
	{"/.github/hooks", "GitHub Copilot CLI runs them", false},
	{"/opencode.json", "opencode starts the servers that it names", false},
	{"/opencode.jsonc", "as opencode.json", false},
	{"/.opencode/opencode.json", "as opencode.json", false},
	{"/.opencode/opencode.jsonc", "as opencode.json", false},
	{"/.opencode/plugin", "opencode runs what is in it when it starts", false},
	{"/.opencode/plugins", "as .opencode/plugin", false},
	{"/.opencode/tool", "as .opencode/plugin", false},
	{"/.opencode/tools", "as .opencode/plugin", false},
	{"/.pi/extensions", "pi runs what is in it when it starts", false},
	{"/.pi/settings.json", "pi runs the packages that it names", false},
}

// privateDirs are the directories that a build fills with what runs on one system
// only, and the files beside them by which it can fill them again.
var privateDirs = []struct {
	dir string
	by  []string
}{
	{"node_modules", []string{"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"}},
	{".venv", []string{"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "requirements.txt"}},
	{"target", []string{"Cargo.lock"}},
}

// private puts the directories that are there to be in place of the word auto. That
// is what holds on macOS, whose programs a Linux guest cannot run; on Linux they can
// be shared, and are.
func private(workspace string, chosen []string) (dirs []string) {
	if len(chosen) == 0 && runtime.GOOS == "darwin" {
		chosen = []string{"auto"}
	}
	for _, dir := range chosen {
		if dir != "auto" {
			dirs = append(dirs, dir)
			continue
		}
		for _, p := range privateDirs {
			there := func(name string) bool { _, err := os.Lstat(filepath.Join(workspace, name)); return err == nil }
			if slices.ContainsFunc(p.by, there) {
				dirs = append(dirs, p.dir)
			}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// guardWorkspace says what of the workspace the guest can see and change.
func guardWorkspace(s *manifest.Share, w profile.Workspace) {
	s.Hidden = append(s.Hidden, w.Hide...)
	s.Protected = append(s.Protected, w.Protect...)
	s.Private = append(s.Private, private(s.Host, w.Private)...)
	if w.NoProtect {
		say.Note("nothing in %s is protected: what the guest writes to .git/hooks and the like, programs of this host will run", s.Host)
		return
	}
	if runtime.GOOS == "darwin" {
		say.Warn("macOS shares a directory as a whole: nothing in %s is protected from the guest, .git/hooks and .git/config neither", s.Host)
		return
	}
	guardPaths(s)
}
