package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/say"
)

// plan is a sandbox as it is to be run: its manifest, and what only this run
// needs to know.
type plan struct {
	m         *manifest.Manifest
	diskSize  manifest.Size
	ephemeral bool // the disk is made for this run
}

const defaultDisk = 16 << 30

// makePlan turns the words of a call into a plan. It fetches what is missing.
func makePlan(o *options, c *config) (*plan, error) {
	if isManifest(o.target) {
		return manifestPlan(o)
	}
	p, isProfile, err := findProfile(o.target)
	if err != nil {
		return nil, err
	}
	ref := o.target
	if !isProfile {
		p = &profile{}
	} else if ref, err = p.image(); err != nil {
		return nil, err
	}
	if other := c.Images[ref]; other != "" {
		ref = other
	}
	m := &manifest.Manifest{Network: network()}
	if err := addRules(m, o, c, p); err != nil {
		return nil, err
	}
	if err := addShares(m, o, isProfile); err != nil {
		return nil, err
	}
	im, err := findImage(ref)
	if err != nil {
		return nil, imageFailed(o.target, isProfile, err)
	}
	m.Machine.Base = im.path
	if m.Machine.Kernel, err = findKernel(); err != nil {
		return nil, err
	}
	m.Machine.CPUs = first(o.cpus, c.CPUs, manifest.DefaultCPUs)
	m.Machine.Memory = first(o.memory, c.Memory, manifest.DefaultMemory)
	m.Machine.Accel = first(o.accel, "auto")
	if err := addCommand(m, o, p, im); err != nil {
		return nil, err
	}
	return &plan{m: m, diskSize: first(o.disk, c.Disk, defaultDisk), ephemeral: true}, nil
}

// network is the same in every sandbox; on QEMU's wire a large frame is what
// makes it fast.
func network() manifest.Network {
	n := manifest.Network{Pool: netip.MustParsePrefix(manifest.DefaultPool), MTU: manifest.DefaultMTU}
	if runtime.GOOS == "linux" {
		n.MTU = manifest.MaxMTU
	}
	return n
}

func isManifest(target string) bool {
	st, err := os.Stat(target)
	return strings.HasSuffix(target, ".toml") && err == nil && st.Mode().IsRegular()
}

// manifestPlan runs a manifest as it stands; flags that would change it are
// refused, so that the file says what runs.
func manifestPlan(o *options) (*plan, error) {
	m, err := manifest.Load(o.target)
	if err != nil {
		return nil, err
	}
	if _, err := rule.Load(rule.Source{Origin: o.target, Allow: m.Rules.Allow, Deny: m.Rules.Deny}); err != nil {
		return nil, err
	}
	if len(o.rules.Allow)+len(o.rules.Deny)+len(o.env)+len(o.mounts)+o.cpus+int(o.memory)+int(o.disk) > 0 || o.workspace+o.workdir+o.user+o.accel != "" {
		return nil, say.WithHint(say.Usage("a manifest is run as it stands"), "change %s, or name a profile or an image", o.target)
	}
	if len(o.command) > 0 {
		m.Run.Command = o.command
	}
	return &plan{m: m, diskSize: defaultDisk, ephemeral: m.Machine.Disk == ""}, nil
}

// addRules joins the rules of the profile, the configuration and the call. They
// only add up; a deny of any of them stays.
func addRules(m *manifest.Manifest, o *options, c *config, p *profile) error {
	set, err := rule.Load(
		rule.Source{Origin: "profile " + o.target, Allow: p.Rules.Allow, Deny: p.Rules.Deny},
		rule.Source{Origin: c.path, Allow: c.Rules.Allow, Deny: c.Rules.Deny},
		rule.Source{Origin: "--allow", Allow: o.rules.Allow},
		rule.Source{Origin: "--deny", Deny: o.rules.Deny},
	)
	if err != nil {
		return err
	}
	for _, w := range set.Warnings() {
		say.Warn("%s", w)
	}
	for _, r := range []manifest.Rules{p.Rules, c.Rules, o.rules} {
		m.Rules.Allow = append(m.Rules.Allow, r.Allow...)
		m.Rules.Deny = append(m.Rules.Deny, r.Deny...)
	}
	if len(m.Rules.Allow) == 0 {
		say.Note("no rule allows anything: this sandbox reaches nothing (--allow HOST opens a host)")
	}
	return nil
}

// addShares shares the workspace, at its own path, and what the call mounts.
func addShares(m *manifest.Manifest, o *options, isProfile bool) error {
	if o.workspace == "" && isProfile {
		o.workspace = "."
	}
	if o.workspace != "" {
		dir, err := shareable(o.workspace)
		if err != nil {
			return fmt.Errorf("--workspace: %w", err)
		}
		m.Shares = append(m.Shares, manifest.Share{Host: dir, Guest: dir})
		m.Run.Workdir = dir
	}
	m.Shares = append(m.Shares, o.mounts...)
	return nil
}

// addCommand decides what runs in the guest, as whom and where.
func addCommand(m *manifest.Manifest, o *options, p *profile, im *image) error {
	m.Run.Command = o.command
	if len(o.command) == 0 {
		m.Run.Command = p.Command
		if len(p.Command) == 0 {
			m.Run.Command = append(append([]string(nil), im.Config.Entrypoint...), im.Config.Cmd...)
		}
	} else if len(p.Command) == 0 && len(im.Config.Entrypoint) > 0 {
		m.Run.Command = append(append([]string(nil), im.Config.Entrypoint...), o.command...)
	}
	m.Run.Env = map[string]string{}
	for _, kv := range im.Config.Env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m.Run.Env[k] = v
		}
	}
	maps.Copy(m.Run.Env, p.Env)
	maps.Copy(m.Run.Env, o.env)
	m.Run.User = first(o.user, p.User, im.Config.User, "root")
	m.Run.Workdir = first(o.workdir, m.Run.Workdir, im.Config.WorkingDir, "/")
	if !filepath.IsAbs(m.Run.Workdir) {
		m.Run.Workdir = "/" + m.Run.Workdir
	}
	owner(m)
	return nil
}

// owner says as whom the guest sees the user's files: as the one who runs the
// command, as far as the number is known here.
func owner(m *manifest.Manifest) {
	name, group, _ := strings.Cut(m.Run.User, ":")
	uid, err1 := strconv.ParseUint(name, 10, 32)
	gid, err2 := strconv.ParseUint(group, 10, 32)
	if err1 != nil {
		return // root, or a name: the image's business
	}
	if err2 != nil {
		gid = 0
	}
	for i := range m.Shares {
		m.Shares[i].UID, m.Shares[i].GID = uint32(uid), uint32(gid)
	}
}

// imageFailed explains a target that led to nothing.
func imageFailed(target string, isProfile bool, err error) error {
	if isProfile || strings.ContainsAny(target, "/:@.") {
		return fmt.Errorf("%s: %w", target, err)
	}
	return say.WithHint(fmt.Errorf("%s is no profile (there is: %s); tried as an image: %w", target, profileNames(), err),
		"sb-run shell runs a shell in this directory")
}

func first[T comparable](values ...T) (v T) {
	var zero T
	for _, v = range values {
		if v != zero {
			return v
		}
	}
	return zero
}

// sandboxName makes a name for a run: of its target and some random letters.
func sandboxName(target, random string) string {
	base := []byte{}
	for _, c := range []byte(strings.ToLower(filepath.Base(target))) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			base = append(base, c)
		} else if len(base) > 0 {
			break
		}
	}
	if len(base) == 0 || len(base) > 20 {
		base = []byte("sandbox")
	}
	return string(base) + "-" + random
}
