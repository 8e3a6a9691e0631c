package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sb/lib/manifest"
	"sb/lib/say"
)

// frameworkMTU is the largest MTU of the wire of Virtualization.framework: its
// attachment is said to stall above the size that it has by default.
const frameworkMTU = 1500

// frameworkLacks is why Virtualization.framework cannot be the machine of a
// manifest, or nil. It decides before anything is started, and stands here and
// not among the files of macOS so that its tests run anywhere.
func frameworkLacks(m *manifest.Manifest, ours []string) error {
	if m.Machine.Accel != "auto" {
		return say.WithHint(say.Usage("accel %s: a machine on macOS is the framework's, which has no other way to run one", m.Machine.Accel),
			"leave --accel out")
	}
	if m.Network.MTU > frameworkMTU {
		return say.Usage("network.mtu: %d is more than the %d that a machine's wire takes on macOS", m.Network.MTU, frameworkMTU)
	}
	for _, s := range m.Shares {
		if err := frameworkShare(s, ours); err != nil {
			return fmt.Errorf("share %s: %w", s.Host, err)
		}
	}
	return nil
}

// frameworkShare refuses a share that needs more than the framework enforces,
// which is read-only or not, for the whole of a directory.
func frameworkShare(s manifest.Share, ours []string) error {
	switch {
	case len(s.Hidden) > 0:
		return cannotKeep(s.Hidden[0], "hide")
	case len(s.Protected) > 0 && !s.ReadOnly:
		return cannotKeep(s.Protected[0], "protect")
	}
	for _, dir := range ours {
		if within(dir, s.Host) || within(s.Host, dir) {
			return say.WithHint(fmt.Errorf("the guest would see %s, a directory of sb's own, which macOS cannot hide from it", dir),
				"share another directory, or set SB_HOME to one outside of it")
		}
	}
	return nil
}

func cannotKeep(path, verb string) error {
	return say.WithHint(fmt.Errorf("macOS shares a directory as a whole and cannot %s %s in it", verb, path),
		"share it read-only without secrets in it, or run this sandbox on Linux")
}

// within reports whether path is dir or lies in it, by whatever names: links,
// and spellings that a file system takes for the same.
func within(path, dir string) bool {
	want, err := os.Stat(dir)
	if err != nil {
		return false
	}
	for p := realPath(path); ; p = filepath.Dir(p) {
		if st, err := os.Stat(p); err == nil && os.SameFile(st, want) {
			return true
		}
		if p == filepath.Dir(p) {
			return false
		}
	}
}

// realPath follows the links of as much of path as exists.
func realPath(path string) string {
	rest := ""
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		if p == filepath.Dir(p) {
			return filepath.Clean(path)
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}
