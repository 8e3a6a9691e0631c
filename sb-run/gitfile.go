package main

import (
	"slices"
	"strings"

	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-run/repo"
)

// gitFile takes the place of git's system-wide configuration in the guest: what is set
// in a repository there, or by the guest's user, counts before it.
const gitFile = "/etc/sb/gitconfig"

// addGitFile has git inside be as at home: it knows the user by name and address, and
// nothing else of his configuration. All users of a guest are one to the host, so git
// need not guard one from another's repositories.
func addGitFile(m *manifest.Manifest) {
	var text strings.Builder
	text.WriteString("[include]\n\tpath = /etc/gitconfig\n[safe]\n\tdirectory = *\n")
	name, email := repo.User()
	if name != "" || email != "" {
		text.WriteString("[user]\n")
	}
	for _, e := range [][2]string{{"name", name}, {"email", email}} {
		if e[1] != "" && checkText(e[1]) == nil {
			text.WriteString("\t" + e[0] + " = " + quoteGit(e[1]) + "\n")
		}
	}
	m.Run.Files = append(m.Run.Files, manifest.File{Path: gitFile, Text: text.String()})
}

// quoteGit writes a value as git-config(1) reads it.
func quoteGit(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(value) + `"`
}

// tellGit says why git does not work in a workspace whose repository is not in it, nor
// in another share.
func tellGit(workspace string, mounts []manifest.Share) {
	git, top := repo.Outside(workspace)
	shared := slices.ContainsFunc(mounts, func(s manifest.Share) bool { return s.Guest == s.Host && strings.HasPrefix(git+"/", s.Host+"/") })
	switch {
	case git == "" || shared:
	case top != workspace:
		say.Note("git does not work inside: the repository is that of %s, of which this is a part: -w %s --workdir %s", top, top, workspace)
	default:
		say.Note("git does not work inside: the repository is elsewhere (%s): --clone gives the sandbox one of its own", git)
	}
}
