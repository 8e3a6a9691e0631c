// Package work keeps what a sandbox's clone had in it at the end: one bare repository
// for each run, of ours, in the state directory.
//
// It is filled from git upload-pack in the guest, by git fetch here, which is given a
// descriptor and no address. Neither side's configuration counts: the repository here
// is new, and so is git's environment. What comes is bounded in bytes, memory and time
// and is checked as git's fsck does; only branches are taken.
package work

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/sb-run/repo"
)

// The bounds of what is taken from a guest, and of what is kept.
const (
	maxBytes  = 2 << 30 // that upload-pack says
	maxTime   = 10 * time.Minute
	maxIdle   = time.Minute // upload-pack says something each 5 s
	maxMemory = 2 << 20     // KiB of git's, address space
	maxRefs   = 1000        // branches
	maxKept   = 20          // runs
)

// Dir is where the work of runs is kept.
type Dir string

// Kept is the work of one run.
type Kept struct {
	Name string    `json:"name"`
	Time time.Time `json:"time"`
	From string    `json:"from"` // the git directory that it is of
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name+".git") }

// from is the file that says which git directory the work is of. Git does not know it.
const from = "sb-from"

// base is the commit that was checked out in the clone. By it, and by the branches below
// refs/known, a fetch asks for no more than what is new.
const base = "refs/base/head"

// Keep takes the branches of the clone of r that the run of that name made, from guest: a
// stream of upload-pack's words. It returns how many are not
// as they were cloned: those are kept.
func (d Dir) Keep(ctx context.Context, name string, r *repo.Repo, guest io.ReadWriter) (n int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("it took more than %v", maxTime))
	defer cancel()
	made := d.path(name) + ".new"
	defer os.RemoveAll(made)
	if err := d.prepare(ctx, made, r); err != nil {
		return 0, err
	}
	if err := fetch(ctx, made, guest, maxBytes); err != nil {
		return 0, err
	}
	if n, err = onlyNew(ctx, made, r.Heads); err != nil || n == 0 {
		return 0, err
	}
	if err := os.Rename(made, d.path(name)); err != nil {
		return 0, err
	}
	return n, d.prune()
}

// prepare makes the repository: it has the objects of the user's, as far as the commit
// that was cloned reaches, without a copy of them.
func (d Dir) prepare(ctx context.Context, made string, r *repo.Repo) error {
	if _, err := git(ctx, made, "", "init", "-q", "--bare", "--template=", "--object-format="+r.Format, made); err != nil {
		return err
	}
	files := map[string]string{from: r.Common + "\n", "objects/info/alternates": filepath.Join(r.Common, "objects") + "\n"}
	if text := r.Shallow(); text != "" {
		files["shallow"] = text
	}
	for name, text := range files {
		path := filepath.Join(made, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	var orders strings.Builder
	if r.Commit != "" {
		fmt.Fprintf(&orders, "create %s %s\n", base, r.Commit)
	}
	for name, id := range r.Heads {
		fmt.Fprintf(&orders, "create refs/known/%s %s\n", name, id)
	}
	_, err := git(ctx, made, orders.String(), "update-ref", "--stdin")
	return err
}

// limited starts a program with a bound on its memory, where the system has one.
const limited = `ulimit -v "$1" 2>/dev/null; shift; exec "$@"`

// bounds keep git within that: it would map and resolve as much at a time as there are
// processors, and the user's own packs count.
var bounds = []string{"-c", "pack.threads=1", "-c", "core.bigFileThreshold=16m", "-c", "core.packedGitWindowSize=32m", "-c", "core.packedGitLimit=256m"}

// git runs git in a bare repository of ours.
func git(ctx context.Context, dir, stdin string, args ...string) (string, error) {
	return run(command(ctx, dir, args...), stdin)
}

func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	before := append([]string{"-c", limited, "sh", fmt.Sprint(maxMemory), "git"}, bounds...)
	cmd := exec.CommandContext(ctx, "/bin/sh", append(before, args...)...)
	cmd.Dir, cmd.Env = "/", append(repo.Environment(), "GIT_DIR="+dir)
	cmd.WaitDelay = time.Second
	return cmd
}

func run(cmd *exec.Cmd, stdin string) (string, error) {
	var out bytes.Buffer
	errs := &last{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, errs
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 127 { // the shell's
		return "", errors.New("git is not installed here")
	}
	return "", fmt.Errorf("git %s: %w: %s", verb(cmd), err, say.Safe(errs.String()))
}

// verb is what git was told to do.
func verb(cmd *exec.Cmd) string {
	args := cmd.Args[slices.Index(cmd.Args, "git")+1:]
	for len(args) > 2 && args[0] == "-c" {
		args = args[2:]
	}
	return args[0]
}

// last keeps the end of what git says, of which a guest may cause any amount. The buffer
// has a name: embedded, its ReadFrom would be last's, without the bound.
type last struct{ buf bytes.Buffer }

// Write implements io.Writer.
func (l *last) Write(b []byte) (int, error) {
	l.buf.Write(b)
	if extra := l.buf.Len() - 1000; extra > 0 {
		l.buf.Next(extra)
	}
	return len(b), nil
}

func (l *last) String() string {
	return strings.Join(strings.FieldsFunc(l.buf.String(), func(c rune) bool { return c == '\n' || c == '\r' }), "; ")
}

// fetch has git fetch the branches from a stream of so many bytes at most, and checks
// all that comes.
func fetch(ctx context.Context, dir string, guest io.ReadWriter, most int64) error {
	end, far, err := fd.Pair("upload-pack", fd.Stream)
	if err != nil {
		return err
	}
	defer far.Close()
	near, err := net.FileConn(end) // to close it while it is read
	end.Close()
	if err != nil {
		return err
	}
	defer near.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := command(ctx, dir,
		"-c", "protocol.version=0", "-c", "transfer.fsckObjects=true", "-c", "fetch.unpackLimit=1", "-c", "core.hooksPath=/dev/null",
		"fetch", "-q", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance", "fd::3", "+refs/heads/*:refs/heads/*")
	cmd.Env = append(cmd.Env, "GIT_ALLOW_PROTOCOL=fd")
	cmd.ExtraFiles = []*os.File{far}
	idle := time.AfterFunc(maxIdle, func() { cancel(fmt.Errorf("nothing came for %v", maxIdle)) })
	defer idle.Stop()
	go func() {
		defer near.Close()
		from := &counted{guest, most, idle}
		if io.Copy(near, from); from.left <= 0 {
			cancel(fmt.Errorf("it is more than %d bytes", most))
		}
	}()
	go func() {
		io.Copy(guest, near)
		near.Close() // git has all that it wants, or gave up
	}()
	_, err = run(cmd, "")
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// counted is what comes from a guest, up to a bound.
type counted struct {
	from io.Reader
	left int64
	idle *time.Timer
}

func (c *counted) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.EOF
	}
	n, err := c.from.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	c.idle.Reset(maxIdle)
	return n, err
}

// branch is one that was kept.
type branch struct{ name, id string }

func branches(ctx context.Context, dir string) (all []branch, err error) {
	text, err := git(ctx, dir, "", "for-each-ref", "--format=%(objectname) %(objecttype) %(refname)", "refs/heads")
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(text) {
		w := strings.SplitN(strings.TrimSuffix(l, "\n"), " ", 3) // a name may have spaces of Unicode's
		if len(w) != 3 || w[1] != "commit" {
			return nil, fmt.Errorf("a branch that is no commit: %.200q", l)
		}
		all = append(all, branch{strings.TrimPrefix(w[2], "refs/heads/"), w[0]})
	}
	if len(all) > maxRefs {
		return nil, fmt.Errorf("it has %d branches, at most %d are kept", len(all), maxRefs)
	}
	return all, nil
}

// onlyNew forgets the branches that are as they were, and counts the others.
func onlyNew(ctx context.Context, dir string, before map[string]string) (n int, err error) {
	all, err := branches(ctx, dir)
	if err != nil {
		return 0, err
	}
	var orders strings.Builder
	for _, b := range all {
		if before[b.name] == b.id {
			fmt.Fprintf(&orders, "delete refs/heads/%s\n", b.name)
		} else {
			n++
		}
	}
	_, err = git(ctx, dir, orders.String(), "update-ref", "--stdin")
	return n, err
}

// List is what is kept, the newest first.
func (d Dir) List() (all []Kept, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".git")
		if !ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(d.path(name), from))
		st, serr := e.Info()
		if err != nil || serr != nil {
			continue
		}
		all = append(all, Kept{name, st.ModTime().Round(time.Second), strings.TrimSpace(string(text))})
	}
	slices.SortFunc(all, func(a, b Kept) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.Name, b.Name)) })
	return all, err
}

// prune removes what is beyond the bound, the oldest first.
func (d Dir) prune() error {
	all, err := d.List()
	for i := maxKept; i < len(all); i++ {
		err = errors.Join(err, os.RemoveAll(d.path(all[i].Name)))
	}
	return err
}
