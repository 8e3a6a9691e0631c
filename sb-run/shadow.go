package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/manifest"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// The bounds of what is kept of a guest's: bytes of a file, and files.
const (
	maxOffered      = 1 << 20
	maxOfferedFiles = 256
)

// offered is a file that a guest wrote for itself at a shadowed path.
type offered struct {
	path string // below the share
	text []byte
	mode fs.FileMode
}

// makeShadows makes the directories of this run that take what its guest writes at
// shadowed paths, with what an earlier one wrote.
func (d *runDir) makeShadows(m *manifest.Manifest) error {
	for i := range m.Shares {
		s := &m.Shares[i]
		if len(s.Shadowed) == 0 || s.Shadow != "" || s.ReadOnly || s.Copy {
			continue
		}
		s.Shadow = d.file(fmt.Sprintf("shadow%d", i))
		if err := os.Mkdir(s.Shadow, 0o700); err != nil {
			return err
		}
		if err := resume(s); err != nil {
			return fmt.Errorf("go on with what an earlier sandbox wrote in %s: %w", s.Host, err)
		}
	}
	return nil
}

// resume puts what an earlier guest wrote into a share's shadow.
func resume(s *manifest.Share) error {
	dir, err := workspaceDir(s.Host)
	if err != nil {
		return err
	}
	held, err := lockOffers(dir)
	if err != nil {
		return err
	}
	defer held.Close()
	files, err := readOffers(filepath.Join(dir, "files"))
	if err != nil {
		return err
	}
	for _, f := range files {
		was, _ := os.ReadFile(filepath.Join(dir, "was", manifest.ShadowName(f.path)))
		if string(was) != digest(s.Host, f.path) {
			say.Note("%s was changed here since a sandbox wrote its own: this one begins with yours (sb-run accept --show)", f.path)
			continue
		}
		if err := writeOffer(s.Shadow, f); err != nil {
			return err
		}
		say.Note("%s is as the last sandbox wrote it for itself (sb-run accept --show)", f.path)
	}
	return nil
}

// keepShadows keeps what the guest wrote and is not on the host so, and says what of
// it an earlier one had not written.
func keepShadows(m *manifest.Manifest, run string) {
	for _, s := range m.Shares {
		if filepath.Dir(s.Shadow) != run {
			continue
		}
		wrote, err := keepShadow(s)
		if err != nil {
			say.Warn("keep what the sandbox wrote for itself in %s: %v", s.Host, err)
		}
		if len(wrote) > 0 {
			say.Note("the sandbox wrote %s: sb-run accept shows it, and takes it if you say so", strings.Join(wrote, ", "))
		}
	}
}

func keepShadow(s manifest.Share) (wrote []string, err error) {
	files, err := readOffers(s.Shadow)
	if err != nil {
		return nil, err
	}
	dir, err := workspaceDir(s.Host)
	if err != nil {
		return nil, err
	}
	held, err := lockOffers(dir)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	before, err := readOffers(filepath.Join(dir, "files"))
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"files", "was"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	// What a command that was ended left is nothing to keep.
	files = slices.DeleteFunc(files, func(f offered) bool { return strings.HasSuffix(f.path, ".lock") })
	differs := map[string]bool{} // a directory is kept whole: the next guest finds it so
	for _, f := range files {
		if digest(s.Host, f.path) != digestOf(f.text, f.mode) {
			if !slices.ContainsFunc(before, func(b offered) bool { return b.path == f.path && digestOf(b.text, b.mode) == digestOf(f.text, f.mode) }) {
				wrote = append(wrote, f.path)
			}
			differs[entryOf(f.path)] = true
		}
	}
	for _, f := range files {
		if err := dropOffer(dir, f.path); err != nil {
			return wrote, err
		}
	}
	for _, f := range files {
		if !differs[entryOf(f.path)] {
			continue
		}
		was := filepath.Join(dir, "was", manifest.ShadowName(f.path))
		if err := errors.Join(os.WriteFile(was, []byte(digest(s.Host, f.path)), 0o600), writeOffer(filepath.Join(dir, "files"), f)); err != nil {
			return wrote, err
		}
	}
	return wrote, nil
}

// dropOffer forgets what was kept of a path, all of its directory's.
func dropOffer(dir, path string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, "files", entryOf(path))), os.RemoveAll(filepath.Join(dir, "was", manifest.ShadowName(path))))
}

// digest stands for a file of the host as it is now.
func digest(workspace, path string) string {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return "none"
	}
	defer root.Close()
	f, err := readOffered(root, path)
	if err != nil {
		return "none"
	}
	return digestOf(f.text, f.mode)
}

func digestOf(text []byte, mode fs.FileMode) string {
	return fmt.Sprintf("%x %o", sha256.Sum256(text), mode.Perm()&0o100)
}

// readOffers reads what is in a directory of shadows. Whatever a guest put there:
// only files are read, and no link is followed.
func readOffers(dir string) (all []offered, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := readDir(root, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path, err := manifest.ShadowPath(e.Name())
		if err != nil || !filepath.IsLocal(path) {
			continue
		}
		names := []string{""}
		if e.IsDir() {
			below, err := readDir(root, e.Name())
			if err != nil {
				return nil, err
			}
			names = nil
			for _, b := range below {
				names = append(names, b.Name())
			}
		}
		for _, name := range names {
			f, err := readOffered(root, filepath.Join(e.Name(), name))
			if err != nil {
				say.Warn("%s, which the sandbox wrote, is not kept: %v", filepath.Join(path, name), err)
				continue
			}
			f.path = filepath.Join(path, name)
			all = append(all, f)
		}
	}
	return all, nil
}

func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxOfferedFiles)
	if err == io.EOF {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// readOffered reads a file; anything else, a FIFO, a link, is refused unopened or
// unread.
func readOffered(root *os.Root, path string) (f offered, err error) {
	file, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return f, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return f, err
	}
	if !st.Mode().IsRegular() {
		return f, errors.New("it is no file")
	}
	text, err := io.ReadAll(io.LimitReader(file, maxOffered+1))
	if err == nil && len(text) > maxOffered {
		err = fmt.Errorf("it is larger than %d bytes", maxOffered)
	}
	return offered{path: path, text: bytes.Clone(text), mode: st.Mode().Perm()}, err
}

// entryOf is the entry of a file in a directory of shadows: of a hook, that of its
// directory.
func entryOf(path string) string {
	dir := filepath.Dir(path)
	// Of a submodule called hooks, the configuration is no hook.
	if in, _ := filepath.Match(".git/modules/*/hooks", dir); in || dir == ".git/hooks" {
		return manifest.ShadowName(dir)
	}
	return manifest.ShadowName(path)
}

func writeOffer(dir string, f offered) error {
	to := filepath.Join(dir, entryOf(f.path))
	if entryOf(f.path) != manifest.ShadowName(f.path) {
		to = filepath.Join(to, filepath.Base(f.path))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	made := dir + ".new" // beside: what is half is no offer
	if err := errors.Join(os.RemoveAll(made), os.WriteFile(made, f.text, f.mode|0o600)); err != nil {
		return err
	}
	return os.Rename(made, to)
}

// lockOffers has what sandboxes of a workspace wrote for themselves change by one
// process at a time: two may end together, and the user accept meanwhile. Closing the
// file ends it.
func lockOffers(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "offers.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
