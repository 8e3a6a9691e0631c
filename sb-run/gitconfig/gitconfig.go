// Package gitconfig judges what a repository's configuration has git run. A guest wrote
// it: what is not known to be harmless is not.
package gitconfig

import (
	"regexp"
	"slices"
	"strings"
)

// harmlessKeys are keys of git's configuration whose values git does not run and
// finds no further configuration by, in each section. What is not listed may; no
// list of what git runs is complete, since a filter, an alias or a tool has a name
// of its own.
var harmlessKeys = map[string][]string{
	"core":       {"repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode", "symlinks", "abbrev", "autocrlf", "eol", "safecrlf", "quotepath", "compression", "sparsecheckout", "sparsecheckoutcone"},
	"user":       {"name", "email"},
	"remote":     {"url", "pushurl", "fetch", "tagopt", "prune", "mirror", "promisor", "partialclonefilter", "gh-resolved"},
	"branch":     {"remote", "pushremote", "merge", "rebase", "description", "gh-merge-base", "vscode-merge-base"},
	"submodule":  {"path", "url", "active", "branch", "update", "shallow", "ignore", "fetchrecursesubmodules"},
	"push":       {"default", "autosetupremote", "followtags"},
	"pull":       {"rebase", "ff"},
	"fetch":      {"prune", "prunetags"},
	"merge":      {"ff", "conflictstyle"},
	"rebase":     {"autosquash", "autostash"},
	"init":       {"defaultbranch"},
	"advice":     {"detachedhead"},
	"extensions": {"worktreeconfig", "objectformat"},
	"gc":         {"auto"},
	"lfs":        {"repositoryformatversion", "locksverify", "access"},
}

var (
	configHeader = regexp.MustCompile(`^\[([A-Za-z]+)( "[^"\\\\]*")?\]$`)
	configKey    = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$`)
	// A value of letters that cannot begin an option or name a helper (ext::sh).
	plainValue = regexp.MustCompile(`^[A-Za-z0-9_./+*][A-Za-z0-9_./+*:@~ -]*$`)
	// A URL that leads to another host: of a path here git runs what that one says.
	plainURL   = regexp.MustCompile(`^((https?|ssh|git)://[A-Za-z0-9]|[A-Za-z0-9_.]+@[A-Za-z0-9][A-Za-z0-9.-]*:)`)
	remoteName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_-]*|\.)$`)
)

// HarmlessLines are the lines of a configuration, by their number, that set nothing
// which git runs. A line that is not understood is not among them, nor one after a
// line that goes on.
func HarmlessLines(lines []string) map[int]bool {
	// A remote without a URL is a path of its name to git.
	remotes := map[string]bool{".": true}
	judge(lines, remotes)
	return judge(lines, remotes)
}

// judge is HarmlessLines as far as the remotes are known, and adds those that it finds.
func judge(lines []string, remotes map[string]bool) map[int]bool {
	harmless := map[int]bool{}
	section, name, goesOn := "", "", false
	for n, line := range lines {
		continued := goesOn
		goesOn = endsOpen(line)
		line = bare(n, line)
		switch header := configHeader.FindStringSubmatch(line); {
		case continued || goesOn:
			section = "" // git may see no comment, or another section, where this does
		case line == "" || line[0] == '#' || line[0] == ';':
			harmless[n] = true
		case header != nil:
			section, name = strings.ToLower(header[1]), strings.Trim(header[2], ` "`)
			harmless[n] = harmlessKeys[section] != nil
		case line[0] == '[':
			section = "" // with a key behind it, or a name that is not understood
		default:
			key, value, ok := harmlessKey(section, line)
			switch {
			case section == "branch" && (key == "remote" || key == "pushremote"):
				ok = ok && remotes[value]
			case section == "remote" && key == "url" && ok:
				remotes[name] = true
			}
			harmless[n] = ok
		}
	}
	return harmless
}

// harmlessKey reads a setting, and tells whether it is harmless by itself.
func harmlessKey(section, line string) (key, value string, ok bool) {
	m := configKey.FindStringSubmatch(line)
	if m == nil {
		return "", "", false
	}
	if key, value = strings.ToLower(m[1]), m[2]; !slices.Contains(harmlessKeys[section], key) {
		return key, value, false
	}
	switch key {
	case "url", "pushurl":
		ok = plainURL.MatchString(value) && plainValue.MatchString(value) && !strings.Contains(value, "::")
	case "update": // may be !command
		ok = value == "checkout" || value == "rebase" || value == "merge" || value == "none"
	case "name", "email", "description":
		ok = true
	case "remote", "pushremote":
		ok = remoteName.MatchString(value) // git takes others for a path
	default:
		ok = value == "" || plainValue.MatchString(value)
	}
	return key, value, ok
}

// endsOpen reports whether git may read the next line as more of this one.
func endsOpen(line string) bool { return strings.HasSuffix(strings.TrimSuffix(line, "\r"), "\\") }

// bare is a line without the blanks around it, the first without the mark of UTF-8
// that git passes over.
func bare(n int, line string) string {
	if n == 0 {
		line = strings.TrimPrefix(line, "\ufeff")
	}
	return strings.TrimSpace(line)
}

// Running are the lines of a configuration that are not harmless, each behind the name
// of what it sets and the header that it stands under: "core.pager [core] pager = less".
// The name is for people, and unclear where a line is not understood.
func Running(text []byte) (found []string) {
	lines := strings.Split(string(text), "\n")
	harmless := HarmlessLines(lines)
	section, header := "", ""
	for n, line := range lines {
		line = bare(n, line)
		setting := line
		if strings.HasPrefix(line, "[") {
			header = line
			section, setting = splitHeader(line)
		}
		if harmless[n] || setting == "" && !(n > 0 && endsOpen(lines[n-1])) {
			continue // a header alone sets nothing
		}
		key, _, _ := strings.Cut(setting, "=")
		name := "unclear"
		if key = strings.TrimSpace(key); configKey.MatchString(key) {
			name = strings.ToLower(section + "." + key)
		}
		found = append(found, name+" "+header+" "+line)
	}
	return found
}

// splitHeader is the section of a line that begins with headers, and what follows them.
func splitHeader(line string) (section, rest string) {
	for rest = line; strings.HasPrefix(rest, "["); {
		head, behind, ok := strings.Cut(rest[1:], "]")
		if !ok {
			return "", line
		}
		section, rest = "", strings.TrimSpace(behind)
		if words := strings.FieldsFunc(head, func(r rune) bool { return strings.ContainsRune(" \t.\"", r) }); len(words) > 0 {
			section = words[0]
		}
	}
	return section, rest
}
