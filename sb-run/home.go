package main

import (
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/say"
)

// keyFiles are paths of a home directory that are known to hold keys, passwords or
// sign-ins. They do not exist for a guest that the home is shared with.
var keyFiles = []string{
	".ssh/id_*", ".ssh/*.pem", ".ssh/*.key", ".gnupg", ".password-store", ".local/share/keyrings", "Library/Keychains",
	".netrc", ".authinfo", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/glab-cli", ".config/hub",
	".aws", ".azure", ".config/gcloud", ".kube", ".docker/config.json", ".config/containers/auth.json", ".config/rclone",
	".config/doctl", ".oci", ".vault-token", ".terraform.d/credentials.tfrc.json", ".config/sops", ".config/age",
	".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials.toml", ".cargo/credentials", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
	".pgpass", ".my.cnf", ".config/op", ".config/Bitwarden CLI",
	".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".config/github-copilot",
	".codex/.credentials.json", ".gemini/mcp-oauth-tokens.json", ".copilot/config.json", ".local/share/opencode/auth.json", ".local/share/opencode/mcp-auth.json", ".pi/agent/auth.json", ".pi/agent/models.json", ".gemini/.env", ".codex/.env",
	".cache/huggingface/token", ".huggingface/token", ".fly/config.yml", ".config/stripe", ".databrickscfg", ".s3cfg", ".boto",
	".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", "Library/Application Support/Google",
	".bash_history", ".zsh_history", ".python_history", ".psql_history", ".local/share/fish/fish_history",
}

// startFiles are paths of a home directory that programs of the host run or read
// programs' names from by themselves. A guest can read them.
var startFiles = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
	".config/fish", ".inputrc", ".pam_environment", ".xprofile", ".xsession", ".xinitrc", ".config/environment.d", ".config/autostart",
	".config/systemd", ".local/share/systemd", ".local/share/applications", ".local/share/dbus-1", "Library/LaunchAgents", ".ssh",
	".gitconfig", ".config/git", ".config/direnv", ".config/mise", ".tmux.conf", ".config/tmux", ".vimrc", ".vim", ".config/nvim", ".emacs", ".emacs.d",
	".config/Code", ".config/zed", ".gdbinit", ".npm-global", "bin", ".local/bin", ".cargo/bin", "go/bin",
	".oh-my-zsh", ".zsh", ".config/zsh", ".bashrc.d", ".bash_completion", ".local/share/bash-completion", ".nvm", ".cargo/env", ".cargo/config.toml", ".local/lib",
	".config/plasma-workspace", ".config/i3", ".config/sway", ".config/hypr", ".psqlrc", ".irbrc", ".pryrc", ".Rprofile", ".lldbinit",
	".claude/settings.json", ".claude/hooks", ".claude/plugins", ".codex/config.toml", ".codex/hooks.json", ".gemini/settings.json", ".gemini/extensions", ".cursor/mcp.json", ".cursor/hooks.json",
	".config/opencode/opencode.json", ".config/opencode/plugin", ".config/opencode/plugins", ".config/opencode/tool", ".config/opencode/tools", ".pi/agent/settings.json", ".pi/agent/extensions",
}

// guardHome hides from a guest what a home directory has of keys and of sb's own,
// and protects what would run on the host by itself.
func guardHome(s *manifest.Share) {
	for _, path := range keyFiles {
		if strings.Contains(path, "*") {
			s.Hidden = append(s.Hidden, "/"+path)
		} else {
			keep.Hide(s, filepath.Join(s.Host, path))
		}
	}
	keep.Hide(s, keep.Ours()...)
	for _, path := range startFiles {
		one := []manifest.Share{{Host: s.Host}}
		// A link to the whole home directory cannot be protected; nothing is one.
		if _, err := keep.Protect(one, filepath.Join(s.Host, path)); err != nil {
			say.Warn("%v", err)
		}
		for _, pattern := range one[0].Protected {
			if !slices.Contains(s.Protected, pattern) {
				s.Protected = append(s.Protected, pattern)
			}
		}
	}
	say.Warn("your whole home directory %s is shared: what is known to hold keys is hidden from the guest, and what is not known is not", s.Host)
}
