package main

import (
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

// parseMount reads HOST:GUEST[:ro].
func parseMount(text string) (manifest.Share, error) {
	parts := strings.Split(text, ":")
	switch {
	case len(parts) < 2 || len(parts) > 3 || parts[0] == "":
		return manifest.Share{}, say.Usage("--mount: %q is not HOST:GUEST[:ro]", text)
	case len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw":
		return manifest.Share{}, say.Usage("--mount: %q: %q is no mount option: ro and rw are", text, parts[2])
	case !filepath.IsAbs(parts[1]) || filepath.Clean(parts[1]) == "/":
		return manifest.Share{}, say.Usage("--mount: %q: %q is not an absolute path below the guest's root", text, parts[1])
	case manifest.GuestsOwn(filepath.Clean(parts[1])) != "":
		return manifest.Share{}, say.Usage("--mount: %q: %s is the guest's own", text, manifest.GuestsOwn(filepath.Clean(parts[1])))
	}
	readOnly := len(parts) == 3 && parts[2] == "ro"
	host, err := shareable(parts[0], !readOnly)
	if err != nil {
		return manifest.Share{}, fmt.Errorf("--mount: %w", err)
	}
	return manifest.Share{Host: host, Guest: filepath.Clean(parts[1]), ReadOnly: readOnly}, nil
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

// shareable returns the real path of a directory that may be shared, for writing
// or not.
func shareable(dir string, writable bool) (string, error) {
	path := dir
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("share %s: %w", dir, err)
		}
		path = filepath.Join(home, rest)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("share %s: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("share %s: %w", dir, err)
	}
	if st, err := os.Stat(real); err != nil {
		return "", fmt.Errorf("share %s: %w", dir, err)
	} else if !st.IsDir() {
		return "", fmt.Errorf("share %s: not a directory", dir)
	}
	const narrower = "go to the directory to work in, or name it with --workspace DIR"
	if own := manifest.GuestsOwn(real); own != "" {
		return "", fmt.Errorf("share %s: %s is of this host's kernel, and no directory to share", dir, own)
	}
	if real == "/" {
		return "", say.WithHint(fmt.Errorf("share %s: that is the whole host", dir), narrower)
	}
	for _, home := range homes() {
		if home == real {
			return "", say.WithHint(fmt.Errorf("share %s: that is your whole home directory, with every key in it", dir), narrower)
		}
		if strings.HasPrefix(home, real+"/") {
			return "", say.WithHint(fmt.Errorf("share %s: your whole home directory lies in it, with every key", dir), narrower)
		}
	}
	if err := keep.Refuse(real, writable, keep.Ours()); err != nil {
		return "", fmt.Errorf("share %s: %w", dir, err)
	}
	return real, nil
}

// protect keeps the guest from changing, in what is shared, what the host runs
// sandboxes by: the tools, the target if it is a manifest, and the configuration
// where it is a link.
func (p *plan) protect(t tools, target, config string) error {
	paths := append(t.dirs(), config)
	if isManifest(target) {
		paths = append(paths, target)
	}
	if p.project != nil {
		paths = append(paths, p.project.path)
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
