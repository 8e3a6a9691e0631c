package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/say"
)

// parseMount reads HOST:GUEST[:ro|:copy]. HOST may have colons in it.
func parseMount(text string, home bool) (manifest.Share, error) {
	rest, option := text, ""
	if i := strings.LastIndex(text, ":"); i > 0 && !strings.Contains(text[i:], "/") && strings.Contains(text[:i], ":/") {
		rest, option = text[:i], text[i+1:]
	}
	i := strings.LastIndex(rest, ":/")
	if i < 0 && strings.Count(rest, ":") == 1 {
		i = strings.Index(rest, ":")
	}
	if i <= 0 {
		return manifest.Share{}, say.Usage("--mount: %q is not HOST:GUEST[:ro|:copy]", text)
	}
	s := manifest.Share{Host: rest[:i], Guest: filepath.Clean(rest[i+1:]), ReadOnly: option == "ro", Copy: option == "copy"}
	switch {
	case !slices.Contains([]string{"", "ro", "rw", "copy"}, option):
		return manifest.Share{}, say.Usage("--mount: %q: %q is no mount option: ro, rw and copy are", text, option)
	case !filepath.IsAbs(s.Guest) || s.Guest == "/":
		return manifest.Share{}, say.Usage("--mount: %q: %q is not an absolute path below the guest's root", text, rest[i+1:])
	case manifest.GuestsOwn(s.Guest) != "":
		return manifest.Share{}, say.Usage("--mount: %q: %s is the guest's own", text, manifest.GuestsOwn(s.Guest))
	}
	if err := setHost(&s, home); err != nil {
		return manifest.Share{}, fmt.Errorf("--mount: %w", err)
	}
	return s, nil
}

// arrange puts shares in the order in which the guest can mount them, one inside
// another after it, and refuses two at one place.
func arrange(shares []manifest.Share) error {
	slices.SortStableFunc(shares, func(a, b manifest.Share) int { return strings.Compare(a.Guest, b.Guest) })
	for i := range shares[min(1, len(shares)):] {
		if shares[i].Guest == shares[i+1].Guest {
			return say.Usage("%s and %s are both to be mounted at %s: --mount and --workspace take a place once", shares[i].Host, shares[i+1].Host, shares[i].Guest)
		}
	}
	return nil
}

// setHost makes a share's host the real path of a directory that may be shared,
// the user's home directory only if that is said.
func setHost(s *manifest.Share, home bool) error {
	dir, real := s.Host, ""
	real, err := realDirectory(dir)
	if err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	const narrower = "go to the directory to work in, or name it with --workspace DIR"
	if own := manifest.GuestsOwn(real); own != "" {
		return fmt.Errorf("share %s: %s is of this host's kernel, and no directory to share", dir, own)
	}
	if real == "/" {
		return say.WithHint(fmt.Errorf("share %s: that is the whole host", dir), narrower)
	}
	s.Host = real
	for _, h := range homes() {
		switch {
		case h == real && home:
			guardHome(s)
		case h == real:
			return say.WithHint(fmt.Errorf("share %s: that is your whole home directory, with every key in it", dir), narrower+"; --share-home shares it all the same, without the files that are known to hold keys")
		case strings.HasPrefix(h, real+"/"):
			return say.WithHint(fmt.Errorf("share %s: your whole home directory lies in it, with every key", dir), narrower)
		}
	}
	if err := keep.Refuse(real, !s.ReadOnly && !s.Copy, keep.Ours(), s.Hidden...); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// realDirectory is the path of dir without links.
func realDirectory(dir string) (string, error) {
	path := dir
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(home, rest)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(real); err != nil {
		return "", err
	} else if !st.IsDir() {
		return "", say.WithHint(errors.New("not a directory"), "share the directory that it lies in")
	}
	return real, nil
}

// protect keeps the guest from changing, in what is shared, what the host runs
// sandboxes by: the tools, the target if it is a manifest, and the configuration
// where it is a link.
func (p *plan) protect(t tools, target, config string) error {
	if p.project != nil { // its page says so
		if _, err := keep.Protect(p.m.Shares, p.project.files()...); err != nil {
			return err
		}
	}
	paths := append(t.dirs(), config)
	if isManifest(target) {
		paths = append(paths, target)
	}
	added, err := keep.Protect(p.m.Shares, paths...)
	for _, path := range added {
		say.Note("%s is read-only in the guest: sandboxes are run by it", path)
	}
	return err
}

// homes are the real paths of the user's home directory: what HOME says, and
// what the system does.
func homes() (real []string) {
	var named []string
	if home, err := os.UserHomeDir(); err == nil {
		named = append(named, home)
	}
	if u, err := user.Current(); err == nil {
		named = append(named, u.HomeDir)
	}
	for _, home := range named {
		if path, err := filepath.EvalSymlinks(home); err == nil && filepath.IsAbs(path) {
			real = append(real, path)
		}
	}
	return real
}
