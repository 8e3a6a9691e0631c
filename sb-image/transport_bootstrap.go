package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strings"

	"sb/lib/say"
)

// bootstrap is a root file system made here out of a Debian suite's signed
// packages, for machines that reach no container registry. mmdebstrap makes it:
// the suite's essential packages, apt, and those that are asked for.
type bootstrap struct {
	suite    string
	packages []string // sorted, each once
	arch     string
	sources  []string // lines of sources.list(5)
	status   bytes.Buffer
}

var (
	suiteName   = regexp.MustCompile(`^[a-z][a-z0-9.-]{0,60}$`)
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{0,200}$`) // deb-control(5)
)

func parseBootstrap(text, rest string) (reference, error) {
	suite, query, _ := strings.Cut(rest, "?")
	if !suiteName.MatchString(suite) {
		return reference{}, say.Usage("%s: %q is no name of a suite", text, suite)
	}
	var packages []string
	for _, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' }) {
		value, ok := strings.CutPrefix(pair, "include=")
		if !ok {
			return reference{}, say.Usage("%s: %q is not include=PACKAGE,…", text, pair)
		}
		for p := range strings.SplitSeq(value, ",") {
			if !packageName.MatchString(p) {
				return reference{}, say.Usage("%s: %q is no name of a package", text, p)
			}
			packages = append(packages, p)
		}
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	full := "bootstrap:" + suite
	if len(packages) > 0 {
		full += "?include=" + strings.Join(packages, ",")
	}
	return reference{full, func(ctx context.Context, platform string, _ bool) (*source, error) {
		b := &bootstrap{suite: suite, packages: packages, arch: strings.Split(platform, "/")[1]}
		return b.source(ctx)
	}}, nil
}

func (b *bootstrap) source(ctx context.Context) (*source, error) {
	if err := canBootstrap(); err != nil {
		return nil, err
	}
	var err error
	if b.sources, err = suiteSources(ctx, b.suite); err != nil {
		return nil, err
	}
	return &source{
		layers: []layer{{name: "made by mmdebstrap", size: -1, open: b.open}},
		run:    runConfig{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Cmd: []string{"bash"}},
		making: b,
	}, nil
}

// watch takes a copy of dpkg's list of what is installed.
func (b *bootstrap) watch(name string) io.Writer {
	if strings.TrimPrefix(name, "./") == "var/lib/dpkg/status" {
		return &b.status
	}
	return nil
}

// canBootstrap says what is missing, if something is.
func canBootstrap() error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return say.WithHint(fmt.Errorf("mmdebstrap is not installed"), "apt-get install mmdebstrap, as root")
	}
	if os.Geteuid() == 0 {
		return nil
	}
	// Without root the packages are installed in a user namespace with many users.
	if _, err := exec.LookPath("newuidmap"); err != nil {
		return say.WithHint(fmt.Errorf("newuidmap is not installed"), "apt-get install uidmap, as root")
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if !hasSubIDs(string(text), me.Username, me.Uid) {
			return say.WithHint(fmt.Errorf("%s gives user %s no range of numbers", file, me.Username),
				"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s, as root, with a range that nobody has", me.Username)
		}
	}
	return nil
}

// hasSubIDs looks for NAME:START:COUNT (subuid(5)).
func hasSubIDs(text, name, uid string) bool {
	for line := range strings.Lines(text) {
		who, _, _ := strings.Cut(line, ":")
		if who == name || who == uid {
			return true
		}
	}
	return false
}

func (b *bootstrap) command(ctx context.Context, more ...string) *exec.Cmd {
	mode := "unshare"
	if os.Geteuid() == 0 {
		mode = "root"
	}
	args := []string{"--variant=minbase", "--mode=" + mode, "--architectures=" + b.arch}
	if len(b.packages) > 0 {
		args = append(args, "--include="+strings.Join(b.packages, ","))
	}
	cmd := exec.CommandContext(ctx, "mmdebstrap", append(args, more...)...)
	cmd.Stdin = strings.NewReader(strings.Join(b.sources, "\n") + "\n")
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	return cmd
}

// open starts mmdebstrap and returns the tar archive that it writes.
func (b *bootstrap) open(ctx context.Context) (io.ReadCloser, error) {
	say.Note("making a root file system of %s, which takes a minute", b.suite)
	b.status.Reset()
	return pipe(b.command(ctx, "--format=tar", b.suite, "-", "-"))
}

// wouldInstall asks the archive what it would be made from now.
func (b *bootstrap) wouldInstall(ctx context.Context) (string, error) {
	p := newProgram(b.command(ctx, "--simulate", "--verbose", b.suite, "/dev/null", "-"))
	if err := p.run(); err != nil {
		return "", err
	}
	var packages []string
	for line := range strings.Lines(p.all) {
		if m := instLine.FindStringSubmatch(line); m != nil {
			packages = append(packages, m[1]+" "+m[2]+" "+m[3])
		}
	}
	return b.fingerprint(packages), nil
}

// Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64]) []
var instLine = regexp.MustCompile(`^Inst (\S+) (?:\[\S+\] )?\((\S+) [^\[]*\[(\S+)\]\)`)

// installed says the same of what was made, from dpkg's own list.
func (b *bootstrap) installed() string {
	var packages []string
	for record := range strings.SplitSeq(b.status.String(), "\n\n") {
		if name := field(record, "Package"); name != "" {
			packages = append(packages, name+" "+field(record, "Version")+" "+field(record, "Architecture"))
		}
	}
	return b.fingerprint(packages)
}

func (b *bootstrap) fingerprint(packages []string) string {
	slices.Sort(packages)
	packages = slices.Compact(packages) // apt is asked in two steps, and lists some in both
	sum := sha256.Sum256([]byte(strings.Join(slices.Concat(b.sources, packages), "\n")))
	return hex.EncodeToString(sum[:])
}
