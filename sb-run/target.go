package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"sb/lib/profile"
	"sb/lib/say"
)

// target is what the call's TARGET stands for.
type target struct {
	profile *profile.Profile // of an image: one that says nothing
	named   bool             // it is a profile's name, not an image
	image   string           // the reference
	project *project         // nil: there is none
}

// findTarget finds what is to run: a profile, or an image. A name that is nearly
// one of ours is taken for a typing error, before anything is fetched.
func findTarget(o *options, c *config) (t target, err error) {
	if err := checkPath(o.target); err != nil {
		return t, err
	}
	p, err := c.profiles().Find(o.target)
	t.named = !errors.Is(err, profile.ErrUnknown)
	if !t.named {
		if err := mistyped(o.target, c); err != nil {
			return t, err
		}
		p, err = &profile.Profile{}, nil
	}
	var perr error
	if t.project, perr = o.project(t.named); perr != nil {
		return t, perr
	}
	if err != nil {
		return t, err
	}
	if !t.named {
		if o.image != "" || o.rebuild || len(o.mcp) > 0 || o.noState {
			return t, say.Usage("--image, --rebuild, --mcp and --no-state are for profiles, and %s is none (there is: %s)", o.target, c.profileNames())
		}
		t.profile, t.image = p, o.target
		return t, nil
	}
	t.profile = p
	t.image, err = chooseImage(o, c, p)
	return t, err
}

// chooseImage is what a profile runs in: what the call says, or else what the
// configuration has for it, or else the first of its own that this host can make.
func chooseImage(o *options, c *config, p *profile.Profile) (string, error) {
	if ref := first(o.image, c.Images[p.Name]); ref != "" {
		return ref, nil
	}
	for _, ref := range p.Image {
		if strings.HasPrefix(ref, "bootstrap:") { // it needs a Debian-like host's tools
			if _, err := exec.LookPath("mmdebstrap"); err != nil {
				continue
			}
		}
		return ref, nil
	}
	return "", say.WithHint(fmt.Errorf("profile %s: it names no image that this host can make", p.Name), "--image names another")
}
