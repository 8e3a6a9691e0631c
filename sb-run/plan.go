package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/rule"
	"sb/lib/say"
	"sb/lib/session"
)

// plan is a sandbox as it is to be run: its manifest, and what only this run
// needs to know.
type plan struct {
	m         *manifest.Manifest
	name      string // what the run's name begins with
	ephemeral bool   // the disk is made for this run
	given     []givenFD
	roots     []string // files of authorities, for the broker
	project   *project // nil: there is none
}

// makePlan turns the words of a call into a plan. It fetches what is missing.
func makePlan(e *ending, o *options, c *config) (*plan, error) {
	if isManifest(o.target) {
		return manifestPlan(o, c)
	}
	t, err := findTarget(o, c)
	if err != nil {
		return nil, err
	}
	p, servers, err := withMCP(t.profile, o.mcp)
	if err != nil {
		return nil, err
	}
	m := &manifest.Manifest{Network: network(c, p)}
	if err := addRules(m, o, c, p); err != nil {
		return nil, err
	}
	if err := judgeSecrets(o, c, p); err != nil {
		return nil, err
	}
	if err := addShares(m, o, c, p, t.named); err != nil {
		return nil, err
	}
	im, err := addMachine(e, m, o, c, t, p)
	if err != nil {
		return nil, err
	}
	addCommand(m, o, p, im)
	m.Run.Files, m.Run.Startup = append(m.Run.Files, p.Files...), p.Startup
	if len(p.State.Paths) > 0 && !o.noState {
		m.Run.State = p.Name
	}
	if err := addSecrets(m, o, c, p); err != nil {
		return nil, err
	}
	if err := addMCP(m, p, servers); err != nil {
		return nil, err
	}
	if err := expandFiles(m); err != nil {
		return nil, err
	}
	return &plan{m: m, name: o.target, ephemeral: true, project: t.project}, checkRun(m)
}

// addMachine says what the machine is made of, and makes what of it is missing:
// the kernel, the image, and the environment that the profile's steps build in it.
func addMachine(e *ending, m *manifest.Manifest, o *options, c *config, t target, p *profile.Profile) (*image, error) {
	kernel := findKernel(e)
	im, err := findImage(e, t.image)
	if err != nil {
		return nil, imageFailed(c, o.target, t.named, err)
	}
	if m.Machine.Kernel, err = kernel(); err != nil {
		return nil, err
	}
	m.Machine.CPUs = first(o.cpus, c.CPUs, manifest.DefaultCPUs)
	m.Machine.Memory = first(o.memory, c.Memory, manifest.DefaultMemory)
	m.Machine.DiskSize = first(o.disk, c.Disk, manifest.DefaultDisk)
	if err := t.project.limit(m, o); err != nil {
		return nil, err
	}
	m.Machine.Accel = first(o.accel, "auto")
	m.Machine.Cold = o.cold
	if len(p.Install) > 0 {
		m.Machine.Base = im.Path
		b, err := newBuild(e, p, im, m)
		if err != nil {
			return nil, err
		}
		if im, err = b.environment(o.rebuild); err != nil {
			return nil, err
		}
	}
	m.Machine.Base = im.Path
	return im, nil
}

// network is the same in every sandbox but for what the user chose, or else the
// profile; on QEMU's wire a large frame is what makes it fast.
func network(c *config, p *profile.Profile) manifest.Network {
	n := manifest.Network{Pool: netip.MustParsePrefix(manifest.DefaultPool), MTU: manifest.DefaultMTU, ECH: first(c.Network.ECH, p.Network.ECH)}
	if runtime.GOOS == "linux" {
		n.MTU = manifest.MaxMTU
	}
	return n
}

// isManifest reports whether the target is a manifest: a file by that name, or
// what could be nothing else.
func isManifest(target string) bool {
	if !strings.HasSuffix(target, ".toml") {
		return false
	}
	_, err := os.Stat(target)
	return err == nil || !strings.Contains(target, ":")
}

// checkPath tells one who names a directory, or a file that is no manifest, what
// to name; no image is called so.
func checkPath(target string) error {
	st, err := os.Stat(target)
	switch {
	case err == nil && st.IsDir() && strings.ContainsAny(target, "./~"):
		return say.WithHint(say.Usage("%s is a directory, and no target", target), "sb-run shell -w %s runs a shell in it", target)
	case target == "." || target == ".." || strings.HasPrefix(target, "./") || strings.HasPrefix(target, "../") || strings.HasPrefix(target, "/"):
		return say.WithHint(say.Usage("%s is a path, and no manifest (a file that ends in .toml)", target), "an image in a file is named by its kind: oci:DIR, docker-archive:FILE, tar:FILE")
	}
	return nil
}

// manifestPlan runs a manifest as it stands; flags that would change it are
// refused, so that the file says what runs. The user's own deny rules hold all
// the same.
func manifestPlan(o *options, c *config) (*plan, error) {
	if len(o.changes) > 0 {
		return nil, say.WithHint(say.Usage("%s: a manifest is run as it stands", o.changes[0]), "change %s, or name a profile or an image", o.target)
	}
	m, err := manifest.Load(o.target)
	if err != nil {
		return nil, err
	}
	for _, d := range c.Rules.Deny {
		if !slices.Contains(m.Rules.Deny, d) {
			m.Rules.Deny = append(m.Rules.Deny, d)
		}
	}
	if err := checkRules(
		rule.Source{Origin: o.target, Allow: m.Rules.Allow, Deny: m.Rules.Deny},
		rule.Source{Origin: c.path, Deny: c.Rules.Deny},
	); err != nil {
		return nil, err
	}
	m.Run.Command = called(m.Run.Command, o.command)
	m.Machine.Cold = m.Machine.Cold || o.cold
	if err := manifestSecrets(m, o); err != nil {
		return nil, err
	}
	return &plan{m: m, name: m.Name, ephemeral: m.Machine.Disk == ""}, checkRun(m)
}

// complete finds what a manifest leaves out, before it is run.
func (p *plan) complete(e *ending, target string) (err error) {
	if p.m.Machine.Base == "" {
		return say.WithHint(fmt.Errorf("%s: machine.base is not set", target), "sb-image path IMAGE prints what it is to be; sb-run IMAGE --print prints a whole manifest")
	}
	if p.m.Machine.Kernel == "" {
		p.m.Machine.Kernel, err = findKernel(e)()
	}
	return err
}

// addRules joins the rules of the profile, the configuration and the call. They
// only add up; a deny of any of them stays.
func addRules(m *manifest.Manifest, o *options, c *config, p *profile.Profile) error {
	for _, r := range []manifest.Rules{p.Rules, c.Rules, o.rules} {
		m.Rules.Allow = append(m.Rules.Allow, r.Allow...)
		m.Rules.Deny = append(m.Rules.Deny, r.Deny...)
	}
	if p.From == "" { // what is built in needs no warning
		if _, err := rule.Load(rule.Source{Origin: "profile " + o.target, Allow: p.Rules.Allow, Deny: p.Rules.Deny}); err != nil {
			return err
		}
		p = &profile.Profile{}
	}
	return checkRules(
		rule.Source{Origin: "profile " + o.target, Allow: p.Rules.Allow, Deny: p.Rules.Deny},
		rule.Source{Origin: c.path, Allow: c.Rules.Allow, Deny: c.Rules.Deny},
		rule.Source{Origin: "--allow", Allow: o.rules.Allow},
		rule.Source{Origin: "--deny", Deny: o.rules.Deny},
	)
}

// checkRules has the error of a bad rule name where it came from.
func checkRules(sources ...rule.Source) error {
	set, err := rule.Load(sources...)
	if err != nil {
		return err
	}
	for _, w := range set.Warnings() {
		say.Warn("%s", w)
	}
	return nil
}

// checkPool refuses to allow what can lead nowhere: an address of the pool is
// this sandbox's own, and stands for a name or for nothing.
func checkPool(m *manifest.Manifest) error {
	for _, text := range m.Rules.Allow {
		r, err := rule.Parse(text)
		if err != nil {
			return err
		}
		if p := r.Addrs(); p.IsValid() && p.Bits() >= m.Network.Pool.Bits() && m.Network.Pool.Contains(p.Addr()) {
			return say.WithHint(say.Usage("rule %q: these addresses are the sandbox's own (%s), and nothing outside has one of them", text, m.Network.Pool),
				"allow the host by its name, or by its own address")
		}
	}
	return nil
}

// addCommand decides what runs in the guest, as whom and where.
func addCommand(m *manifest.Manifest, o *options, p *profile.Profile, im *image) {
	m.Run.Command = called(p.Command, o.command)
	if len(m.Run.Command) == 0 {
		m.Run.Command = append(append([]string(nil), im.Config.Entrypoint...), im.Config.Cmd...)
	} else if len(p.Command) == 0 && len(im.Config.Entrypoint) > 0 {
		m.Run.Command = append(append([]string(nil), im.Config.Entrypoint...), o.command...)
	}
	m.Run.Env = im.env()
	if slices.ContainsFunc(m.Run.Files, func(f manifest.File) bool { return f.Path == gitFile }) {
		m.Run.Env["GIT_CONFIG_SYSTEM"] = gitFile
	}
	maps.Copy(m.Run.Env, p.Env)
	maps.Copy(m.Run.Env, o.env)
	if p.User != "" && o.user == "" {
		m.Run.User, m.Run.MakeUser = agentUser, p.User
	}
	m.Run.User = first(o.user, m.Run.User, im.Config.User, "root")
	// An image may name it in any form; the guest's paths are Unix paths.
	m.Run.Workdir = path.Clean("/" + first(o.workdir, m.Run.Workdir, im.Config.WorkingDir))
	owner(m)
}

// called is what a call with these words runs: words that begin with a flag are for
// the command that is there, sb-run claude -- --continue; others take its place.
func called(command, words []string) []string {
	if len(words) == 0 || len(command) > 0 && strings.HasPrefix(words[0], "-") {
		return append(slices.Clone(command), words...)
	}
	return words
}

// checkRun refuses what cannot reach the guest, before a machine is booted for
// it: the guest stream and the manifest carry text, and so much of it.
func checkRun(m *manifest.Manifest) error {
	if err := checkPool(m); err != nil {
		return err
	}
	for i, arg := range m.Run.Command {
		if err := checkText(arg); err != nil {
			return say.Usage("word %d of the command, %q, %w", i+1, arg, err)
		}
	}
	for name, value := range m.Run.Env {
		if err := checkText(name + value); err != nil {
			return say.Usage("the variable %s: its value %w", name, err)
		}
	}
	if err := checkProvision(m); err != nil {
		return err
	}
	for _, s := range m.Shares {
		if err := checkText(s.Host + s.Guest); err != nil {
			return say.Usage("share %q: its path %w", s.Host, err)
		}
	}
	text, err := json.Marshal(guestCommand(m))
	if err != nil {
		return err
	}
	if most := session.MaxFrame - 256; len(text) > most { // the terminal's type and size come to it
		return say.WithHint(say.Usage("the command and its variables have %d bytes, at most %d go to the guest", len(text), most), "pass what is long on stdin or in a file")
	}
	return nil
}

func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("is not UTF-8")
	}
	if strings.Contains(s, "\x00") {
		return errors.New("holds a zero byte")
	}
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
func imageFailed(c *config, target string, isProfile bool, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return err // sb-image itself
	}
	if isProfile || strings.ContainsAny(target, "/:@.") {
		return fmt.Errorf("%s: %w", target, err)
	}
	return say.WithHint(fmt.Errorf("%s is no profile (there is: %s); tried as an image: %w", target, c.profileNames(), err),
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
