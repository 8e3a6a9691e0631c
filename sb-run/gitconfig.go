package main

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
	"remote":     {"url", "pushurl", "fetch", "tagopt", "prune", "mirror", "promisor", "partialclonefilter"},
	"branch":     {"remote", "pushremote", "merge", "rebase", "description"},
	"submodule":  {"url", "active", "branch", "update"},
	"push":       {"default", "autosetupremote", "followtags"},
	"pull":       {"rebase", "ff"},
	"fetch":      {"prune", "prunetags"},
	"merge":      {"ff", "conflictstyle"},
	"rebase":     {"autosquash", "autostash"},
	"init":       {"defaultbranch"},
	"advice":     {"detachedhead"},
	"extensions": {"worktreeconfig", "objectformat"},
}

var (
	configHeader = regexp.MustCompile(`^\[([A-Za-z]+)( "[^"\\\\]*")?\]$`)
	configKey    = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$`)
	// A value of letters that cannot begin an option or name a helper (ext::sh).
	plainValue = regexp.MustCompile(`^[A-Za-z0-9_./+*][A-Za-z0-9_./+*:@~ -]*$`)
	plainURL   = regexp.MustCompile(`^((https?|ssh|git)://[A-Za-z0-9]|[A-Za-z0-9_.]+@[A-Za-z0-9.]+:|/|\.\.?/)`)
)

// harmlessLines are the lines of a configuration, by their number, that set nothing
// which git runs. A line that is not understood is not among them, nor one after a
// line that goes on.
func harmlessLines(text string) map[int]bool {
	harmless := map[int]bool{}
	section, goesOn := "", false
	for n, line := range lines(text) {
		continued := goesOn
		goesOn = strings.HasSuffix(strings.TrimSuffix(line, "\r"), "\\")
		line = strings.TrimSpace(line)
		switch header := configHeader.FindStringSubmatch(line); {
		case continued || goesOn:
			section = "" // git may see no comment, or another section, where this does
		case line == "" || line[0] == '#' || line[0] == ';':
			harmless[n] = true
		case header != nil:
			section = strings.ToLower(header[1])
			harmless[n] = harmlessKeys[section] != nil
		case line[0] == '[':
			section = "" // with a key behind it, or a name that is not understood
		default:
			harmless[n] = harmlessKey(section, line)
		}
	}
	return harmless
}

func harmlessKey(section, line string) bool {
	m := configKey.FindStringSubmatch(line)
	if m == nil || !slices.Contains(harmlessKeys[section], strings.ToLower(m[1])) {
		return false
	}
	switch value := m[2]; strings.ToLower(m[1]) {
	case "url", "pushurl":
		return plainURL.MatchString(value) && plainValue.MatchString(value) && !strings.Contains(value, "::")
	case "update": // may be !command
		return value == "checkout" || value == "rebase" || value == "merge" || value == "none"
	case "name", "email", "description":
		return true
	case "remote", "pushremote":
		return plainValue.MatchString(value) && !strings.Contains(value, ":")
	default:
		return value == "" || plainValue.MatchString(value)
	}
}
