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
	Why  string // what runs it, a few words
	mark string // other than before when the file is
}

// A Change is a file that a run made or changed.
type Change struct {
	Path string // within the directory
	Why  string
	New  bool
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
// their paths. What a cut scan before did not see counts as new.
func Changes(before, after State) (all []Change) {
	for path, item := range after.Found {
		if was, ok := before.Found[path]; !ok || was.mark != item.mark {
			all = append(all, Change{path, item.Why, !ok})
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
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
	files := []string{".git", ".git/hooks", ".git/config", ".git/config.worktree"}
	for name := range byName {
		files = append(files, name)
	}
	for _, d := range byDirectory {
		for _, name := range d.files {
			files = append(files, d.dir+"/"+name)
		}
	}
	for _, path := range files {
		if info, err := w.root.Lstat(path); err == nil {
			w.entry(path, fs.FileInfoToDirEntry(info))
		}
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
		if !skipped(d) {
			w.directory(d, depth+1)
		}
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
	why := w.special(path, info)
	if why == "" {
		why = known(path, info)
	}
	if why == "" {
		return
	}
	mark := info.Mode().String()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := w.root.Readlink(path)
		mark += target
	case info.Mode().IsRegular():
		var ok bool
		if mark, ok = w.read(path, info, &why); !ok {
			return
		}
	}
	w.state.Found[path] = Item{why, mark}
}

// special is what a file is by its kind, whatever it is called.
func (w *walk) special(path string, info fs.FileInfo) string {
	switch m := info.Mode(); {
	case m&fs.ModeSymlink != 0:
		target, err := w.root.Readlink(path)
		if err == nil && leadsOut(w.dir, path, target) {
			return fmt.Sprintf("a link that leads out, to %q", target[:min(len(target), 200)])
		}
	case m&fs.ModeDevice != 0:
		return "a device"
	case m.IsRegular() && m&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		return "runs as its owner or group (setuid, setgid)"
	}
	return ""
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

// read makes the mark of a file, of the part that could run where only a part
// can. ok is false if there is none.
func (w *walk) read(path string, info fs.FileInfo, why *string) (mark string, ok bool) {
	text, err := readFile(w.root, path)
	if err != nil {
		return "unreadable " + info.Mode().String(), true
	}
	mark = fmt.Sprint(info.Mode())
	if info.Size() > maxFile {
		// Too long to be understood: its whole counts, by what is seen of it.
		return fmt.Sprintf("%s %d %d %x", mark, info.Size(), info.ModTime().UnixNano(), sha256.Sum256(text)), true
	}
	if pick := part(path); pick != nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
		found := pick(text)
		if len(found) == 0 {
			return "", false
		}
		slices.Sort(found)
		*why = fmt.Sprintf("%s: %.200s", *why, strings.Join(names(found), ", "))
		text = []byte(strings.Join(found, "\n"))
	}
	return fmt.Sprintf("%s %x", mark, sha256.Sum256(text)), true
}
