package main

import (
	"fmt"

	"sb/lib/keep"
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
	case len(s.Shadowed) > 0 && !s.ReadOnly:
		return cannotKeep(s.Shadowed[0], "protect")
	}
	// What holds one of ours is refused if it is read-only, too: the guest would
	// see what cannot be hidden from it.
	return keep.Refuse(s.Host, true, ours)
}

func cannotKeep(path, verb string) error {
	return say.WithHint(fmt.Errorf("macOS shares a directory as a whole and cannot %s %s in it", verb, path),
		"share it read-only without secrets in it, or run this sandbox on Linux")
}
