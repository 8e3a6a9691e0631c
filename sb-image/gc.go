package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sb/lib/say"
	"sb/lib/template"
)

func runGc(args []string) error {
	flags := say.Flags("sb-image gc", "", `
Removes images that no reference stands for, kernels that are not in use, saved
machines that nothing can start from any more, and what killed processes left.
What a running sandbox or another sb-image holds a lock on stays. Prints how many
bytes that made free.`)
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return say.Usage("gc takes no argument, not %q", flags.Arg(0))
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	return untilSignal(func(ctx context.Context) error {
		c := &collector{s: s}
		for _, step := range []func(context.Context) error{c.images, c.orphans, c.kernels, c.templates, c.unlocked} {
			if err := step(ctx); err != nil {
				return fmt.Errorf("collect garbage: %w", err)
			}
		}
		fmt.Println(c.freed)
		return nil
	})
}

// collector counts what it removes.
type collector struct {
	s     *store
	freed int64
}

// images removes those that no reference stands for, and references to nothing.
func (c *collector) images(ctx context.Context) error {
	refs, err := c.s.refs()
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, r := range refs {
		named[r.Digest] = true
		if _, err := c.s.image(r.Digest); errors.Is(err, fs.ErrNotExist) {
			if err := c.take(c.s.refFile(r.Ref, r.Platform), "a reference to nothing"); err != nil {
				return err
			}
		}
	}
	digests, err := c.s.images()
	if err != nil {
		return err
	}
	for _, d := range digests {
		if named[d] || ctx.Err() != nil {
			continue
		}
		if err := c.image(d); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *collector) image(digest string) error {
	lock, err := c.s.tryLockName(digest)
	if err != nil || lock == nil { // somebody is pulling it
		return err
	}
	defer lock.Close()
	n, err := c.s.removeImage(digest)
	if errors.Is(err, errInUse) {
		return nil
	}
	c.freed += n
	say.Note("removed %s", digest)
	return err
}

// orphans removes file systems without a record: pulls that were killed between
// the two. Whoever is still at work holds a lock on the file.
func (c *collector) orphans(context.Context) error {
	files, err := filepath.Glob(c.s.path("images", "*.erofs"))
	for _, f := range files {
		if _, err := os.Lstat(strings.TrimSuffix(f, ".erofs") + ".json"); err == nil {
			continue
		}
		if err := c.takeUnlocked(f, "a file system without a record"); err != nil {
			return err
		}
	}
	return err
}

// kernels removes those that no link leads to.
func (c *collector) kernels(context.Context) error {
	entries, err := os.ReadDir(c.s.path("kernel"))
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, e := range entries {
		if to, err := os.Readlink(c.s.path("kernel", e.Name())); err == nil {
			used[to], used[e.Name()] = true, true
		}
	}
	for _, e := range entries {
		dir := c.s.path("kernel", e.Name())
		if used[e.Name()] || !c.free(filepath.Join(dir, "vmlinux")) {
			continue
		}
		if err := c.takeUnlocked(dir, "a kernel"); err != nil {
			return err
		}
	}
	return nil
}

// templates removes saved machines whose kernel, image, guest program or QEMU is
// gone or another.
func (c *collector) templates(context.Context) error {
	t, err := template.Open()
	if err != nil {
		return err
	}
	freed, err := t.Collect(func(l template.Listed) { say.Note("removed a saved machine, %.12s", l.Key) })
	c.freed += freed
	return err
}

// unlocked removes what is half made, fetched for nothing, or was a lock.
func (c *collector) unlocked(context.Context) error {
	for _, dir := range []string{"tmp", "blobs", "locks"} {
		entries, err := os.ReadDir(c.s.path(dir))
		if err != nil {
			return err
		}
		what := map[string]string{"tmp": "an unfinished thing", "blobs": "a layer of no image"}[dir]
		for _, e := range entries {
			if err := c.takeUnlocked(c.s.path(dir, e.Name()), what); err != nil {
				return err
			}
		}
	}
	return nil
}

// free reports whether nobody holds a lock on file.
func (c *collector) free(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	held, err := tryLock(f)
	return err == nil && held
}

// takeUnlocked removes a file or a directory unless somebody holds a lock on it.
func (c *collector) takeUnlocked(path, what string) error {
	if st, err := os.Lstat(path); err == nil && st.Mode().Type()&fs.ModeSymlink != 0 {
		lock, err := c.s.tryLockName(kernelLock) // no other links are made
		if err != nil || lock == nil {
			return err
		}
		defer lock.Close()
		return c.take(path, what)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if held, err := tryLock(f); err != nil || !held || !samePath(f) {
		return err
	}
	return c.take(path, what)
}

// take removes a file or a directory with all that is in it.
func (c *collector) take(path, what string) error {
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			c.freed += diskUse(p)
		}
		return nil
	})
	if err == nil {
		err = os.RemoveAll(path)
	}
	if err == nil && what != "" {
		say.Note("removed %s, %s", what, filepath.Base(path))
	}
	return err
}
