package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sb/lib/say"
)

// errNoPackage is the answer of a machine whose package archive has no kernel
// of the kind, or which has no apt.
var errNoPackage = errors.New("apt knows no package of a kernel for machines of our kind")

// Debian's kernel without drivers for real hardware: a meta package of a name
// that stays, which depends on that of the present version.
func kernelPackage(arch string) string { return "linux-image-cloud-" + arch }

// apt runs apt's programs, on the machine's own package lists or on private
// ones. Both verify what they fetch by the archive's signed lists.
type apt struct {
	dir     string // where it downloads to
	arch    string
	private bool
}

// findApt resolves the kernel's package with the machine's lists. Where those
// are missing, old or not to be read it fetches lists of its own, which takes
// no root.
func (w *kernelWork) findApt(ctx context.Context) (foundKernel, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return foundKernel{}, fmt.Errorf("%w: there is no apt-get", errNoPackage)
	}
	a := &apt{dir: w.tmp, arch: w.arch}
	found, err := a.find(ctx)
	if err != nil {
		if err := a.goPrivate(ctx); err != nil {
			return foundKernel{}, say.WithHint(err, "apt-get update, as root, says more")
		}
		if found, err = a.find(ctx); err != nil {
			return foundKernel{}, err
		}
	}
	download := found.get
	found.get = func(ctx context.Context) (string, error) {
		file, err := download(ctx)
		if err == nil || a.private || ctx.Err() != nil {
			return file, err
		}
		// The lists name a file that the archive has replaced since.
		if err := a.goPrivate(ctx); err != nil {
			return "", err
		}
		again, err := a.find(ctx)
		if err != nil {
			return "", err
		}
		found.kernelInfo = again.kernelInfo
		return again.get(ctx)
	}
	return found, nil
}

// find asks for the package that the meta package depends on, and its digest.
func (a *apt) find(ctx context.Context) (foundKernel, error) {
	meta := kernelPackage(a.arch)
	record, err := a.run(ctx, "apt-cache", "show", "--no-all-versions", meta)
	if err != nil {
		return foundKernel{}, errNoPackage
	}
	dep := dependency.FindStringSubmatch(field(record, "Depends"))
	if dep == nil {
		return foundKernel{}, fmt.Errorf("package %s depends on %q: no kernel of one version", meta, field(record, "Depends"))
	}
	pkg := dep[1] + "=" + dep[2]
	if record, err = a.run(ctx, "apt-cache", "show", pkg); err != nil {
		return foundKernel{}, err
	}
	digest := strings.ToLower(field(record, "SHA256"))
	if !isHex(digest, 64) {
		return foundKernel{}, fmt.Errorf("apt's lists have no SHA256 for %s", pkg)
	}
	return foundKernel{
		kernelInfo: kernelInfo{Arch: a.arch, Source: "apt " + pkg, SHA256: digest},
		get:        func(ctx context.Context) (string, error) { return a.download(ctx, pkg) },
	}, nil
}

// linux-image-6.1.0-57-cloud-amd64 (= 6.1.192-3)
var dependency = regexp.MustCompile(`(?:^|, )(linux-image-[a-z0-9.+-]+) \(= ([A-Za-z0-9.+:~-]+)\)`)

// field returns a field of the first record (deb-control(5)); none of those asked for has several lines.
func field(record, name string) string {
	for line := range strings.Lines(record) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (a *apt) download(ctx context.Context, pkg string) (string, error) {
	say.Note("fetching %s", pkg)
	if _, err := a.run(ctx, "apt-get", "--quiet", "download", pkg); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(a.dir, "linux-image-*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("apt-get download %s left %d files", pkg, len(files))
	}
	return files[0], nil
}

// goPrivate fetches package lists into our own directory, from the archives
// that the machine's apt is configured with.
func (a *apt) goPrivate(ctx context.Context) error {
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o600); err != nil {
		return err
	}
	conf := fmt.Sprintf(privateLists, a.dir, a.arch)
	if err := os.WriteFile(filepath.Join(a.dir, "apt.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	a.private = true
	say.Note("fetching package lists")
	_, err := a.run(ctx, "apt-get", "--quiet", "--error-on=any", "update")
	return err
}

// The host's hooks are for its own lists. What apt would fetch besides the
// lists of packages is left out.
const privateLists = `#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "%[1]s";
Dir::State::Lists "%[1]s/lists";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
`

// run starts one of apt's programs and returns what it printed.
func (a *apt) run(ctx context.Context, program string, args ...string) (string, error) {
	// Our directory is ours alone, so apt's own user could not write there.
	options := []string{"-o", "APT::Sandbox::User=", "-o", "APT::Get::AllowUnauthenticated=false"}
	if a.private {
		options = append(options, "-c", filepath.Join(a.dir, "apt.conf"))
	}
	cmd := exec.CommandContext(ctx, program, append(options, args...)...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return output(cmd)
}
