// Package leftovers finds what a run left in a shared directory that the host may
// run without being asked to: hooks, tasks of editors, links that lead out.
//
// The line is drawn at what runs on its own, or as a side effect of an everyday
// command (git status, cd, npm install, opening the directory): what a user runs
// by its name, as a Makefile or a test, is what he asked the guest to write.
//
// Names and contents are the guest's. No link is followed, every read is bounded,
// and what is returned must be made safe before it is shown.
package leftovers

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The bounds of one scan: entries, and time. What lies beyond is not looked at,
// and Cut says so.
const (
	MaxEntries = 200_000
	MaxTime    = 3 * time.Second
)

// maxFile is how much of a file is compared; of a longer one, its size and time
// besides.
const maxFile = 1 << 20

// A State is what was found that could run on the host, by its path within the
// directory.
type State struct {
	Found map[string]Item
	Cut   bool // not everything was looked at
}

// An Item is one such file.
type Item struct {
	Kind string // what runs it, a few words: one of a bounded number
	Why  string // the same, with what is its own
	Rank int    // the lower, the less it takes for it to run
	mark string // other than before when the file is
}

// A Change is a file that a run made or changed.
type Change struct {
	Path string // within the directory
	Item
	New bool
}

// Scan looks through a directory. One that cannot be read is cut.
func Scan(dir string) State { return scan(dir, MaxEntries, time.Now().Add(MaxTime)) }

func scan(dir string, most int, end time.Time) State {
	s := State{Found: map[string]Item{}}
	root, err := os.OpenRoot(dir)
	if err != nil {
		s.Cut = true
		return s
	}
	defer root.Close()
	w := walk{root: root, dir: dir, left: most, end: end, state: &s}
	w.first()
	w.directory(".", 0)
	return s
}

// Changes are the files of after that were not there before, or not so, sorted by
// their ranks, kinds and paths. What a cut scan before did not see counts as new.
func Changes(before, after State) (all []Change) {
	for path, item := range after.Found {
		if was, ok := before.Found[path]; !ok || was.mark != item.mark {
			all = append(all, Change{path, item, !ok})
		}
	}
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Path, b.Path))
	})
	return all
}

// walk is one scan.
type walk struct {
	root  *os.Root
	dir   string
	left  int
	end   time.Time
	state *State
}

// first looks at the best known places, so that no heap of files before them
// keeps the scan from getting there.
func (w *walk) first() {
	files := []string{".git", ".git/hooks", "HEAD"}
	for _, f := range ofGit {
		files = append(files, ".git/"+f.path)
	}
	for _, t := range tables {
		for name := range t.names {
			files = append(files, name)
		}
		for _, d := range t.dirs {
			for _, name := range d.files {
				files = append(files, d.name+"/"+name)
			}
		}
	}
	for _, path := range files {
		w.look(path)
	}
}

// look looks at one file, if it is there.
func (w *walk) look(path string) {
	if info, err := w.root.Lstat(path); err == nil {
		w.entry(path, fs.FileInfoToDirEntry(info))
	}
}

// maxDepth is how deep directories are looked into.
const maxDepth = 64

// directory looks at what lies in a directory, in the order in which it is read:
// a large one is not held in memory. What lies deeper comes after.
func (w *walk) directory(rel string, depth int) {
	f, err := w.root.Open(rel)
	if err != nil || depth > maxDepth {
		w.state.Cut = true
		return
	}
	defer f.Close()
	var deeper []string
	for !w.over() {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if w.left--; w.over() {
				return
			}
			path := filepath.Join(rel, e.Name())
			if e.IsDir() {
				deeper = append(deeper, path)
			}
			w.entry(path, e)
		}
		if err != nil || len(entries) == 0 {
			break
		}
	}
	// What git and the editors read comes before what may be large.
	slices.SortFunc(deeper, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	for _, d := range deeper {
		if w.over() {
			return
		}
		if skipped(d) {
			w.look(filepath.Join(d, "info/alternates"))
			continue
		}
		w.directory(d, depth+1)
	}
}

// skipped are directories of which nothing runs by itself and that are large.
func skipped(path string) bool { return within(filepath.ToSlash(path), ".git/objects", false) }

func (w *walk) over() bool {
	if w.left < 0 || time.Now().After(w.end) {
		w.state.Cut = true
		return true
	}
	return false
}

// entry notes a file if it could run.
func (w *walk) entry(path string, e fs.DirEntry) {
	info, err := e.Info() // of the name itself, not of what a link leads to
	if err != nil {
		return
	}
	r := known(w.name(path), info)
	item := Item{Kind: r.why, Why: r.why, Rank: r.rank}
	if kind, own := w.special(path, info); kind != "" {
		item.Kind, item.Why = kind, kind+own
		if r.why == "" {
			item.Rank = byItself
		}
		r.pick = nil
	} else if r.why == "" {
		return
	}
	item.mark = info.Mode().String()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := w.root.Readlink(path)
		item.mark += target
	case info.Mode().IsRegular():
		if !w.read(path, info, r.pick, &item) {
			return
		}
	}
	w.state.Found[path] = item
}

// fold is a path in lower case: on a file system that passes over case a tool finds
// the file by it.
func fold(path string) string {
	return strings.ToLower(strings.ToUpper(filepath.ToSlash(path))) // by way of upper case for letters with two lower ones
}

// name is what known knows a path by. HEAD alone is in upper case: head is another file
// unless it is found by that name.
func (w *walk) name(path string) string {
	if base := filepath.Base(path); base != "HEAD" && fold(base) == "head" {
		if _, err := w.root.Lstat(filepath.Join(filepath.Dir(path), "HEAD")); err != nil {
			return path + "?"
		}
	}
	return fold(w.asGit(path))
}

// asGit is a path as if it lay in a .git, where HEAD beside it makes a repository of its
// directory without one.
func (w *walk) asGit(path string) string {
	dir, file := filepath.Split(path)
	dir = filepath.Clean(dir)
	if strings.EqualFold(filepath.Base(dir), "hooks") {
		dir, file = filepath.Dir(dir), "hooks/"+file
	} else if !slices.Contains([]string{"config", "config.worktree", "commondir"}, fold(file)) {
		return path
	}
	if _, err := w.root.Lstat(filepath.Join(dir, "HEAD")); err != nil || inGit(fold(dir)) {
		return path
	}
	return filepath.Join(dir, ".git", file)
}

// special is what a file is by its kind, whatever it is called, and what is to be said
// of this one.
func (w *walk) special(path string, info fs.FileInfo) (kind, own string) {
	switch m := info.Mode(); {
	case m&fs.ModeSymlink != 0:
		target, err := w.root.Readlink(path)
		if err == nil && leadsOut(w.dir, path, target) {
			kind, own = "a link that leads out", fmt.Sprintf(", to %q", target[:min(len(target), 200)])
		}
	case m&fs.ModeDevice != 0:
		kind = "a device"
	case m.IsRegular() && m&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		kind = "runs as its owner or group (setuid, setgid)"
	}
	return kind, own
}

// leadsOut reports whether a link's text leads out of the directory. Where it
// goes by way of another link, that one is listed.
func leadsOut(dir, path, target string) bool {
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, filepath.Dir(path), target)
	}
	target = filepath.Clean(target)
	return target != dir && !strings.HasPrefix(target, strings.TrimSuffix(dir, "/")+"/")
}

// read makes the mark of a file, of the part that pick finds if that is not nil. It
// reports whether there is one.
func (w *walk) read(path string, info fs.FileInfo, pick func([]byte) []string, item *Item) bool {
	text, err := readFile(w.root, path)
	if err != nil {
		item.mark = "unreadable " + info.Mode().String()
		return true
	}
	if info.Size() > maxFile {
		// Too long to be understood: its whole counts, by what is seen of it.
		item.mark = fmt.Sprintf("%v %d %d %x", info.Mode(), info.Size(), info.ModTime().UnixNano(), sha256.Sum256(text))
		return true
	}
	if pick != nil {
		found := pick(text)
		if len(found) == 0 {
			return false
		}
		item.Why = item.Kind + ": " + names(found)
		text = []byte(strings.Join(found, "\n"))
	}
	item.mark = fmt.Sprintf("%v %x", info.Mode(), sha256.Sum256(text))
	return true
}
