package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// The bounds of what is taken from the host.
const (
	maxSeed  = 32 << 20 // of one file
	maxSeeds = 128 << 20
)

// Project says whether a pattern of seeds is about one directory, and not about all.
func Project(pattern string) bool {
	return strings.Contains(pattern, "{project}") || strings.Contains(pattern, "{slashes}")
}

var notPlain = regexp.MustCompile(`[^A-Za-z0-9]`)

// Expand puts a directory's names into a pattern, as clients make them: {project} of
// everything but letters and digits dashes, {slashes} of slashes, but for the first.
func Expand(pattern, dir string) string {
	return strings.NewReplacer(
		"{project}", notPlain.ReplaceAllString(dir, "-"),
		"{slashes}", strings.ReplaceAll(strings.TrimPrefix(dir, "/"), "/", "-"),
	).Replace(pattern)
}

// Source is where on the host the files of a client lie: those of Name, relative to
// the home, in Dir.
type Source struct{ Name, Dir string }

// Take reads the files that a pattern, relative to the home, finds in a client's own
// directory, without their secrets; left says what was left out, and why. Nothing is
// taken from outside of the directory, wherever a link leads.
func (s Source) Take(pattern string) (seeds []Seed, left []error) {
	real, err := filepath.EvalSymlinks(s.Dir)
	if err != nil {
		return nil, nil // no such client here
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(pattern, s.Name), "/")
	found, err := filepath.Glob(filepath.Join(escape(real), rest))
	if err != nil {
		return nil, []error{err}
	}
	total := 0
	for _, path := range found {
		rel, err := filepath.Rel(real, path)
		if err != nil || IsCredential(rel) {
			continue
		}
		var seed Seed
		if err = errNoName; isName(filepath.Join(s.Name, rel)) {
			seed, err = take(real, path)
		}
		if total += len(seed.Text); err == nil && total > maxSeeds {
			err = fmt.Errorf("more than %d MiB", maxSeeds>>20)
		}
		if err == nil {
			seed.Text, err = Clean(rel, seed.Text)
		}
		switch {
		case errors.Is(err, errNoFile):
		case err != nil:
			left = append(left, fmt.Errorf("%s is not taken over: %w", filepath.Join(s.Dir, rel), err))
		default:
			seed.Name = filepath.Join(s.Name, rel)
			seeds = append(seeds, seed)
		}
	}
	return seeds, left
}

// workedIn is the directory that a session was in, as clients write it into its file.
var workedIn = regexp.MustCompile(`"cwd":\s*("(?:[^"\\]|\\.)*")`)

// IsOf tells whether a file of sessions is of this directory, as far as it says: what a
// pattern expands to is one name for several (/a/b-c and /a/b/c).
func (s Seed) IsOf(dir string) bool {
	m := workedIn.FindSubmatch(s.Text)
	var in string
	return m == nil || json.Unmarshal(m[1], &in) == nil && in == dir
}

// escape has a directory mean itself in a pattern.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

var errNoFile = errors.New("no file")

// take reads one file of the directory, which real is the true path of.
func take(real, path string) (Seed, error) {
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Seed{}, err
	}
	rel, err := filepath.Rel(real, to)
	if err != nil || !filepath.IsLocal(rel) || IsCredential(rel) {
		return Seed{}, fmt.Errorf("it leads to %s", to)
	}
	f, err := os.OpenFile(to, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Seed{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return Seed{}, err
	case st.Mode().Type() != 0:
		return Seed{}, errNoFile
	case st.Size() > maxSeed:
		return Seed{}, fmt.Errorf("it has more than %d MiB", maxSeed>>20)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSeed))
	return Seed{Mode: int64(st.Mode() & fs.ModePerm), Time: st.ModTime(), Text: text}, err
}
