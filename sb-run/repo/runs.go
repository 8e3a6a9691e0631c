package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Of git's settings (git-config(1)): paths that it goes by, further configuration, and
// commands that it runs by itself in everyday work.
var (
	pathKey    = regexp.MustCompile(`^core\.(hookspath|attributesfile)$`)
	includeKey = regexp.MustCompile(`^include(if\..*)?\.path$`)
	commandKey = regexp.MustCompile(`^(core\.(fsmonitor|sshcommand|pager|editor|askpass|gitproxy)|sequence\.editor|interactive\.difffilter|pager\..*|` +
		`diff\.(external|.*\.(command|textconv))|merge\..*\.driver|filter\..*\.(clean|smudge|process)|gpg\.(.*\.)?program|credential\.(.*\.)?helper)$`)
)

// maxFiles is how many files of configuration are read.
const maxFiles = 20

// runs is what Runs has found so far, below dir.
type runs struct {
	dir   string
	files []string // of configuration
	paths []string
}

// Runs are the paths below dir, a working tree or a bare repository, that the
// configuration of its repository or of the user has git go by or run.
func Runs(dir string) []string {
	r := &runs{dir: dir}
	for setting := range strings.SplitSeq(global(), "\x00") {
		r.take("/", setting)
	}
	r.files = []string{".git/config", ".git/config.worktree"}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
		r.files = append(r.files, "config") // it is bare
	}
	for i := 0; i < len(r.files); i++ {
		text, err := readFile(dir, r.files[i])
		if err != nil {
			continue // it is not there, or no file, or leads out
		}
		settings, _ := list(text) // what git cannot read it does not go by
		for setting := range strings.SplitSeq(settings, "\x00") {
			r.take(filepath.Dir(r.files[i]), setting)
		}
	}
	return r.paths
}

// take judges one setting of a file in the directory in, below dir.
func (r *runs) take(in, setting string) {
	key, value, _ := strings.Cut(setting, "\n")
	switch {
	case pathKey.MatchString(key):
		r.add(value)
	case includeKey.MatchString(key):
		if !filepath.IsAbs(value) && !strings.HasPrefix(value, "~/") {
			value = filepath.Join(in, value)
		}
		if path := r.add(value); path != "" && len(r.files) < maxFiles && !slices.Contains(r.files, path) {
			r.files = append(r.files, path)
		}
	case commandKey.MatchString(key):
		for _, word := range strings.Fields(value) {
			// What is no path, or a directory that a program is given, is none.
			word = strings.Trim(word, `!"'`)
			if st, err := os.Stat(r.at(word)); strings.Contains(word, "/") && err == nil && st.Mode().IsRegular() {
				r.add(word)
			}
		}
	}
}

// add adds a path if it lies below dir, and returns how it is called there.
func (r *runs) add(path string) string {
	path, err := filepath.Rel(r.dir, r.at(path))
	if err != nil || path == "." || !filepath.IsLocal(path) {
		return ""
	}
	if !slices.Contains(r.paths, path) {
		r.paths = append(r.paths, path)
	}
	return path
}

// at is where a path of a configuration is.
func (r *runs) at(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, _ := os.UserHomeDir()
		return filepath.Join(home, rest)
	}
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(r.dir, path)
}
