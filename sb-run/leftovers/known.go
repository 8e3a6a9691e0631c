package leftovers

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"sb/sb-run/gitconfig"

	"golang.org/x/sys/unix"
)

// A reason is why a file is listed.
type reason struct {
	why  string // "": it is not
	rank int
	pick func(text []byte) []string // the part that could run; nil: all
}

// known is what runs a file of this name. The path is in lower case.
func known(name string, info fs.FileInfo) reason {
	if info.IsDir() {
		return reason{}
	}
	base, dir := path.Base(name), path.Dir(name)
	link := info.Mode()&fs.ModeSymlink != 0
	if r := gitRuns(base, dir); r.why != "" {
		return r
	}
	if link && gitDir(dir) {
		return reason{inPlace + "git goes by it", byGit, nil}
	}
	if isMise(base, "/"+dir) {
		return reason{miseRuns, byItself, nil}
	}
	for _, rank := range []int{byItself, asked} {
		if why := tables[rank].names[base]; why != "" {
			return reason{why, rank, parts[base]}
		}
		if why := tables[rank].why(dir, base, link); why != "" {
			return reason{why, rank, nil}
		}
	}
	if dir == "." && info.Mode()&0o111 != 0 && slices.Contains(commands, base) {
		return reason{"a program called as a common one", byItself, nil}
	}
	return reason{}
}

// gitRuns is what git does with a file by itself.
func gitRuns(base, dir string) (r reason) {
	if base == ".git" {
		return reason{gitElsewhere, byGit, nil}
	}
	if !inGit(dir) {
		if base == "head" {
			return reason{gitBare, byGit, nil}
		}
		return r
	}
	if strings.Contains("/"+dir+"/", "/hooks/") {
		if strings.HasSuffix(base, ".sample") {
			return r // git does not run those
		}
		return reason{"git runs it", byGit, nil}
	}
	for _, f := range ofGit {
		if !matches(path.Base(f.path), base) {
			continue
		}
		repo, file := dir, base
		for range strings.Count(f.path, "/") {
			repo, file = path.Dir(repo), path.Join(path.Base(repo), file)
		}
		if gitDir(repo) && matches(f.path, file) {
			return reason{f.why, byGit, f.pick}
		}
	}
	return r
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
	"package.json":   npmScripts,
	".gitconfig":     gitconfig.Running,
	".gitmodules":    gitconfig.Running,
	".gitattributes": attributes,
}

// maxNames is how many bytes of names are shown of a file.
const maxNames = 200

// names are the names that such lines begin with, in one line.
func names(lines []string) string {
	var all []string
	for _, l := range lines {
		name, _, _ := strings.Cut(l, " ")
		all = append(all, name)
	}
	slices.Sort(all)
	text := strings.Join(slices.Compact(all), ", ")
	if len(text) > maxNames {
		return text[:maxNames] + "… and others"
	}
	return text
}

// atInstall are the scripts that npm install and those like it run.
var atInstall = []string{"preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare", "prepublish", "predependencies", "dependencies", "postdependencies", "pnpm:devPreinstall"}

// npmScripts are those of a package.json. One that cannot be read is listed whole. Names
// are told apart by case, as npm does and a Go struct would not.
func npmScripts(text []byte) (found []string) {
	var top, scripts map[string]json.RawMessage
	err := json.Unmarshal(text, &top)
	if s, ok := top["scripts"]; ok && err == nil {
		err = json.Unmarshal(s, &scripts)
	}
	if err != nil {
		return []string{"unreadable " + string(text)}
	}
	for _, name := range atInstall {
		if script, ok := scripts[name]; ok {
			found = append(found, name+" "+string(script))
		}
	}
	return found
}

// execs are the commands of a rebase that was begun.
func execs(text []byte) (found []string) {
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && (words[0] == "exec" || words[0] == "x") {
			found = append(found, "exec "+line)
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
