// Package repo reads a git repository of the host's, as far as a clone of it needs.
//
// Git is not run in it: its configuration may name programs, and a guest that had the
// tree once may have written that. Files are read beneath the git directory, through no
// link that leads out of it, and git is only asked to parse text that it is given.
package repo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// Repo is a working tree and its repository.
type Repo struct {
	Top    string            // the working tree, a real path
	Common string            // the git directory with its objects and branches, a real path
	Branch string            // what is checked out; "" if no branch is
	Commit string            // what that is; "" if there is none yet
	Empty  bool              // it has no commit at all
	Heads  map[string]string // commits by their branches
	Format string            // of its objects: sha1 or sha256
	Origin string            // the address of the remote by that name, without a password; "": none
	Secret bool              // Origin had one

	Name, Email string // of the user, where the repository has its own
}

// ErrNone is the error about a directory that is in no repository.
var ErrNone = errors.New("it is in no git repository")

// What is read of a file at most: bytes.
const (
	maxText   = 1 << 20
	maxPacked = 64 << 20
	maxHeads  = 10000 // branches
)

// Find reads the repository that dir, a real path, is in.
func Find(dir string) (*Repo, error) {
	for top := dir; ; top = filepath.Dir(top) {
		dot := filepath.Join(top, ".git")
		st, err := os.Lstat(dot)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if top == filepath.Dir(top) {
				return nil, ErrNone
			}
			continue
		case err != nil:
			return nil, err
		}
		r := &Repo{Top: top}
		git := dot
		switch {
		case st.Mode().IsRegular():
			git, err = r.elsewhere(dot)
		case !st.IsDir():
			err = fmt.Errorf("%s is neither a directory nor a file", dot)
		default:
			r.Common = dot
		}
		if err == nil {
			err = r.read(git)
		}
		if err != nil {
			return nil, fmt.Errorf("read the repository of %s: %w", top, err)
		}
		return r, nil
	}
}

// At reads a git directory, a real path, by itself.
func At(dir string) (*Repo, error) {
	r := &Repo{Common: dir}
	if err := r.read(dir); err != nil {
		return nil, fmt.Errorf("read the repository %s: %w", dir, err)
	}
	return r, nil
}

// Outside is the git directory of the repository that dir, a real path, is in, if it does
// not lie in dir: dir is a linked worktree, a submodule or a part of a tree, whose top
// there is. "" if it does, or there is none.
func Outside(dir string) (git, top string) {
	for top = dir; ; top = filepath.Dir(top) {
		dot := filepath.Join(top, ".git")
		st, err := os.Lstat(dot)
		switch {
		case err == nil && st.Mode().IsRegular():
			text, _ := readFile(top, ".git")
			to := strings.TrimPrefix(strings.TrimSpace(text), "gitdir: ")
			if !filepath.IsAbs(to) {
				to = filepath.Join(top, to)
			}
			if rel, err := filepath.Rel(dir, to); err == nil && filepath.IsLocal(rel) {
				return "", ""
			}
			return to, top
		case err == nil && top == dir, top == filepath.Dir(top):
			return "", ""
		case err == nil:
			return dot, top
		}
	}
}

// elsewhere follows a .git that is a file to the git directory of this tree: of a
// linked worktree, or of a submodule. It must point back, or a file that anybody
// wrote would say which repository of the user's the guest is shown.
func (r *Repo) elsewhere(dot string) (git string, err error) {
	text, err := readFile(filepath.Dir(dot), ".git")
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%s says no gitdir", dot)
	}
	if git, err = real(r.Top, to); err != nil {
		return "", err
	}
	back := ""
	if filepath.Base(filepath.Dir(git)) == "worktrees" {
		r.Common = filepath.Dir(filepath.Dir(git))
		if back, err = readFile(git, "gitdir"); err != nil {
			return "", err
		}
		back, err = real(git, strings.TrimSpace(back))
	} else {
		r.Common = git
		text, cerr := readFile(git, "config")
		if cerr != nil {
			return "", cerr
		}
		config, cerr := parse(text)
		if cerr != nil {
			return "", cerr
		}
		back, err = real(git, config["core.worktree"]+"/.git")
	}
	if err != nil || back != dot {
		return "", say.WithHint(fmt.Errorf("%s points to %s, which does not point back", dot, git), "git worktree repair mends a worktree that was moved")
	}
	return git, nil
}

// real is the real path of name, which is relative to dir.
func real(dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	return filepath.EvalSymlinks(name)
}

var (
	commitID   = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	branchName = regexp.MustCompile(`^[^\x00-\x20\x7f~^:?*\[\\-][^\x00-\x20\x7f~^:?*\[\\]*$`) // of git-check-ref-format(1), with fs.ValidPath
)

// read reads what is checked out, and the configuration.
func (r *Repo) read(git string) error {
	text, err := readFile(r.Common, "config")
	if err != nil {
		return err
	}
	config, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(r.Common, "config"), err)
	}
	r.Name, r.Email = config["user.name"], config["user.email"]
	r.Origin, r.Secret = withoutPassword(config["remote.origin.url"])
	r.Format = config["extensions.objectformat"]
	if r.Format == "" {
		r.Format = "sha1"
	}
	if s := config["extensions.refstorage"]; s != "" && s != "files" {
		return say.WithHint(fmt.Errorf("its branches are kept as %q, and only files are read", s), "git refs migrate --ref-format=files")
	}
	if _, err := os.Stat(filepath.Join(r.Common, "objects", "info", "alternates")); err == nil {
		return say.WithHint(errors.New("some of its objects lie in another repository (objects/info/alternates)"), "git repack -a -d, and remove that file: then it is whole")
	}
	head, err := readFile(git, "HEAD")
	if err != nil {
		return err
	}
	return r.resolve(strings.TrimSpace(head))
}

// resolve finds the branches and their commits, and what is checked out.
func (r *Repo) resolve(checkedOut string) error {
	r.Heads = map[string]string{}
	packed, err := readFile(r.Common, "packed-refs")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for l := range strings.Lines(packed) {
		id, name, _ := strings.Cut(strings.TrimSpace(l), " ")
		if branch, ok := strings.CutPrefix(name, "refs/heads/"); ok && commitID.MatchString(id) && isBranch(branch) {
			r.Heads[branch] = id
		}
	}
	if err := r.loose(); err != nil {
		return err
	}
	if len(r.Heads) > maxHeads {
		return fmt.Errorf("it has %d branches, at most %d are cloned", len(r.Heads), maxHeads)
	}
	switch branch, ok := strings.CutPrefix(checkedOut, "ref: refs/heads/"); {
	case ok && isBranch(branch):
		r.Branch, r.Commit = branch, r.Heads[branch]
	case commitID.MatchString(checkedOut):
		r.Commit = checkedOut
	default:
		return fmt.Errorf("its HEAD is neither a branch nor a commit: %.100q", checkedOut)
	}
	r.Empty = r.Commit == "" && len(r.Heads) == 0
	return nil
}

// loose reads the branches that are files, which count before those that are packed.
func (r *Repo) loose() error {
	dir := filepath.Join(r.Common, "refs", "heads")
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		branch, err := filepath.Rel(dir, path)
		if err != nil || !isBranch(branch) {
			return err // a lock, or what git ignores too
		}
		id, err := readFile(r.Common, "refs/heads/"+branch)
		if id = strings.TrimSpace(id); err == nil && commitID.MatchString(id) {
			r.Heads[branch] = id
		}
		return err
	})
}

func isBranch(name string) bool {
	return fs.ValidPath(name) && branchName.MatchString(name) && !strings.HasSuffix(name, ".lock")
}

// readFile reads a file beneath dir: a regular one, and no endless one.
func readFile(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO is not waited for
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", filepath.Join(dir, name))
	}
	most := int64(maxText)
	if name == "packed-refs" {
		most = maxPacked
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", filepath.Join(dir, name), most)
	}
	return string(text), err
}

// Shallow is the text that says where a history of which not all was fetched ends.
func (r *Repo) Shallow() string {
	text, _ := readFile(r.Common, "shallow")
	return text
}

// withoutPassword takes the user and the password out of an address of HTTP, and
// the password out of any other.
func withoutPassword(address string) (clean string, had bool) {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address, false
	}
	if _, had = u.User.Password(); u.Scheme == "http" || u.Scheme == "https" {
		had, u.User = true, nil // GitHub takes a token as the user
	} else if had {
		u.User = url.User(u.User.Username())
	}
	return u.String(), had
}
