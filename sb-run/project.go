package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"

	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/rule"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// projectName is the project file, in the workspace or a directory above it up to
// the top of its repository.
const projectName = ".sb.toml"

// maxProject bounds it.
const maxProject = 64 << 10

// project is a project file. Whoever wrote it need not be the user, so until he
// has accepted it as it is only what narrows holds: Rules.Deny, Workspace and the
// sizes, which are ceilings in either case.
type project struct {
	Profile string         `toml:"profile"` // what sb-run without a target runs
	Image   string         `toml:"image"`
	Rules   manifest.Rules `toml:"rules"`
	Secrets []string       `toml:"secrets"`

	Workspace struct {
		ReadOnly bool     `toml:"read_only"`
		Protect  []string `toml:"protect"` // as --protect, below the file's directory
		Hide     []string `toml:"hide"`    // as --hide
	} `toml:"workspace"`

	CPUs   int           `toml:"cpus"`
	Memory manifest.Size `toml:"memory"`
	Disk   manifest.Size `toml:"disk"`

	path     string     // "" if there are only files above
	above    []*project // those further up, of which what narrows holds too
	text     []byte
	accepted bool
}

// findProject returns the project file of a directory, which lies at most as far up
// as the top of its repository, with what those above it narrow; nil if there is none
// at all. One that is there and cannot be used is an error: what it denies would not
// hold.
func findProject(dir string) (*project, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", projectName, err)
	}
	var found *project
	for mine := true; !slices.Contains(homes(), dir) && dir != "/"; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, projectName)
		st, err := os.Lstat(path)
		theirs := !mine && err == nil && !own(st) // in a directory that others write to, as /tmp
		if !errors.Is(err, fs.ErrNotExist) && !theirs {
			p, err := readProject(path)
			if err != nil {
				return nil, say.WithHint(err, "put it right or remove it: what it denies would not hold")
			}
			if !mine || found != nil {
				found = found.below(p)
			} else {
				found = p
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			mine = false
		}
	}
	return found, nil
}

// below is a project file with what the one further up narrows: that holds as well,
// or a guest that has only what lies below it could take its place, by a file of its
// own or a directory .git.
func (p *project) below(up *project) *project {
	if p == nil {
		p = &project{}
	}
	p.above = append(p.above, up)
	p.Rules.Deny = append(p.Rules.Deny, up.Rules.Deny...)
	p.Workspace.ReadOnly = p.Workspace.ReadOnly || up.Workspace.ReadOnly
	p.CPUs, p.Memory, p.Disk = least(p.CPUs, up.CPUs), least(p.Memory, up.Memory), least(p.Disk, up.Disk)
	return p
}

// least is the smaller ceiling; 0 is none.
func least[T int | manifest.Size](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// own tells whether a file is this user's.
func own(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Getuid()
}

func readProject(path string) (*project, error) {
	text, err := readProjectText(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p := &project{path: path, text: text}
	if err := manifest.Decode(path, text, p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	p.accepted, err = isTrusted(p)
	return p, err
}

func readProjectText(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the project file (a link is not followed): %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("read the project file: %w", err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errors.New("it is not a regular file")
	case int(st.Uid) != os.Getuid():
		return nil, fmt.Errorf("it belongs to another user (%d)", st.Uid)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxProject+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the project file: %w", err)
	case len(text) > maxProject:
		return nil, fmt.Errorf("it is longer than %d bytes", maxProject)
	case !utf8.Valid(text):
		return nil, errors.New("it is not UTF-8")
	}
	return text, nil
}

// files are all that hold.
func (p *project) files() (all []string) {
	for _, q := range append([]*project{p}, p.above...) {
		if q.path != "" {
			all = append(all, q.path)
		}
	}
	return all
}

func (p *project) check() error {
	if p.Profile != "" && !profile.IsName(p.Profile) {
		return fmt.Errorf("%s: profile: %q is no name of a profile", p.path, p.Profile)
	}
	if p.CPUs < 0 || p.CPUs > manifest.MaxCPUs || p.Memory != 0 && p.Memory < manifest.MinMemory {
		return fmt.Errorf("%s: cpus, memory: no machine has so few or so many", p.path)
	}
	if p.Disk != 0 {
		if err := checkDisk("disk", p.Disk); err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
	}
	w := profile.Workspace{Protect: p.Workspace.Protect, Hide: p.Workspace.Hide}
	if err := w.Check(); err != nil {
		return fmt.Errorf("%s: workspace: %w", p.path, err)
	}
	_, err := rule.Load(rule.Source{Origin: p.path, Allow: p.Rules.Allow, Deny: p.Rules.Deny})
	return err
}

// widens reports whether it asks for what holds only once it is accepted.
func (p *project) widens() bool {
	return p.Profile != "" || p.Image != "" || len(p.Rules.Allow) > 0 || len(p.Secrets) > 0
}

// into adds to a call's words what holds of the file.
func (p *project) into(o *options, isProfile bool) {
	if p == nil {
		return
	}
	o.rules.Deny = append(o.rules.Deny, p.Rules.Deny...)
	if !p.accepted {
		if p.widens() {
			say.Note("%s is not accepted: where it narrows it holds; what it allows, its secrets, image and profile do not count (sb-run trust shows it, and asks)", p.path)
		}
		return
	}
	o.rules.Allow = append(o.rules.Allow, p.Rules.Allow...)
	o.secrets = append(o.secrets, p.Secrets...)
	if isProfile {
		o.image = first(o.image, p.Image)
	}
}

// project finds the project file of a call's workspace and adds what holds of it.
func (o *options) project(isProfile bool) (*project, error) {
	if o.workspace == "" && !isProfile {
		return nil, nil
	}
	dir, err := realDirectory(first(o.workspace, "."))
	if err != nil {
		return nil, fmt.Errorf("--workspace: share %s: %w", first(o.workspace, "."), err)
	}
	p, err := findProject(dir)
	if err != nil {
		return nil, err
	}
	p.into(o, isProfile)
	return p, nil
}

// projectTarget is the profile that an accepted project file names.
func projectTarget() (string, error) {
	p, err := findProject(".")
	switch {
	case err != nil || p == nil || p.Profile == "":
		return "", err
	case !p.accepted:
		return "", say.WithHint(fmt.Errorf("%s names a profile to run, and is not accepted", p.path), "sb-run trust shows it and accepts it, or name a target: sb-run %s", p.Profile)
	}
	return p.Profile, nil
}

// trustFile is where it is remembered that a file was accepted: by its place and
// every byte of it.
func trustFile(p *project) (string, error) {
	config, err := dirs.Config()
	if err != nil {
		return "", err
	}
	dir, err := dirs.Ensure(filepath.Join(config, "trusted"))
	return filepath.Join(dir, projectDigest(p.path, p.text)), err
}

func projectDigest(path string, text []byte) string {
	sum := sha256.Sum256([]byte(path + "\x00" + string(text)))
	return hex.EncodeToString(sum[:])
}

func isTrusted(p *project) (bool, error) {
	file, err := trustFile(p)
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
