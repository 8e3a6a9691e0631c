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
	".claude/settings.json", ".claude/hooks", ".codex/config.toml", ".gemini/settings.json", ".cursor/mcp.json",
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
