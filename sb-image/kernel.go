package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"sb/lib/say"

	"github.com/BurntSushi/toml"
)

// kernelInfo is kernel.toml. A kernel's directory holds besides it vmlinux,
// which the machine starts at once, and modules.cpio, an archive that the
// kernel unpacks as part of its first root: modules/NAME.ko, and modules/order
// with their names, one a line, in the order in which to load them.
type kernelInfo struct {
	Dir           string   `toml:"-" json:"dir"`
	Version       string   `toml:"version" json:"version"` // as uname -r prints it
	Arch          string   `toml:"arch" json:"arch"`       // as Go names it
	Source        string   `toml:"source" json:"source"`   // the package, address or file it came from
	SHA256        string   `toml:"sha256" json:"sha256"`   // of that package or file
	VmlinuxSHA256 string   `toml:"vmlinux_sha256" json:"vmlinux_sha256"`
	ModulesSHA256 string   `toml:"modules_sha256" json:"modules_sha256"`
	Modules       []string `toml:"modules" json:"modules"` // in load order
}

// kernelLock is held while a kernel is installed.
const kernelLock = "the kernel"

const kernelAbout = `The kernel that boots the sandboxes' machines.`

func runKernel(args []string) error {
	return say.Verbs("sb-image kernel", kernelAbout, []say.Verb{
		{Name: "install", Args: "[--from FILE|URL]", Text: "fetch a kernel, print its directory", Run: runKernelInstall},
		{Name: "show", Args: "", Text: "print the directory of the kernel in use", Run: runKernelShow},
	}, args)
}

func runKernelInstall(args []string) error {
	fs := say.Flags("sb-image kernel install", "[--from FILE|URL [--sha256 HEX]] [--force]", `
Installs a kernel and prints its directory. Without --from it is the
distribution's, from the package archive that apt is configured with; where
there is no apt, one that is pinned by its digest in this program.`)
	from := fs.String("from", "", "take this Debian package, bzImage, vmlinux or Image")
	digest := fs.String("sha256", "", "the digest that the file must have; a URL needs one")
	force := fs.Bool("force", false, "install it again if it is there")
	if err := say.Parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return say.Usage("kernel install takes no argument, not %q", fs.Arg(0))
	}
	if err := checkFrom(*from, *digest); err != nil {
		return err
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	return untilSignal(func(ctx context.Context) error {
		lock, err := s.lock(ctx, kernelLock)
		if err != nil {
			return err
		}
		defer lock.Close()
		w, err := newKernelWork(s)
		if err != nil {
			return err
		}
		defer w.close()
		dir, err := w.install(ctx, *from, strings.ToLower(*digest), *force)
		if err != nil {
			return fmt.Errorf("install a kernel: %w", err)
		}
		fmt.Println(dir)
		return nil
	})
}

func checkFrom(from, digest string) error {
	switch {
	case digest != "" && !isHex(digest, 64):
		return say.Usage("--sha256 is %q, not 64 hexadecimal digits", digest)
	case digest != "" && from == "":
		return say.Usage("--sha256 is for the file of --from")
	case isURL(from) && digest == "":
		return say.WithHint(say.Usage("--from %s needs --sha256: nothing else says what comes from there", from),
			"sha256sum prints it, of a file that you trust")
	}
	return nil
}

func isURL(s string) bool { return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") }

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

func runKernelShow(args []string) error {
	fs := say.Flags("sb-image kernel show", "[--json]", "Prints the directory of the kernel in use.")
	asJSON := fs.Bool("json", false, "print what it is, as JSON")
	if err := say.Parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return say.Usage("kernel show takes no argument, not %q", fs.Arg(0))
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	info, err := s.currentKernel(runtime.GOARCH)
	if err != nil {
		return err
	}
	if *asJSON {
		return say.JSON(os.Stdout).Encode(info)
	}
	fmt.Println(info.Dir)
	return nil
}

// currentKernel reads the kernel in use for arch.
func (s *store) currentKernel(arch string) (kernelInfo, error) {
	name, err := os.Readlink(s.path("kernel", arch))
	if errors.Is(err, fs.ErrNotExist) {
		return kernelInfo{}, say.WithHint(fmt.Errorf("there is no kernel for %s", arch), "sb-image kernel install")
	}
	if err != nil {
		return kernelInfo{}, err
	}
	return readKernel(s.path("kernel", name))
}

func readKernel(dir string) (kernelInfo, error) {
	info := kernelInfo{Dir: dir}
	if _, err := toml.DecodeFile(filepath.Join(dir, "kernel.toml"), &info); err != nil {
		return info, say.WithHint(fmt.Errorf("read the kernel: %w", err), "sb-image kernel install --force")
	}
	return info, nil
}

// kernelFrom finds an installed kernel that was made from the file with that digest.
func (s *store) kernelFrom(digest, arch string) (kernelInfo, bool) {
	dirs, _ := filepath.Glob(s.path("kernel", "*", "kernel.toml"))
	for _, d := range dirs {
		if info, err := readKernel(filepath.Dir(d)); err == nil && info.SHA256 == digest && info.Arch == arch {
			return info, true
		}
	}
	return kernelInfo{}, false
}

// useKernel makes the kernel in dir the one in use for its architecture.
func (s *store) useKernel(dir, arch string) error {
	tmp := s.path("tmp", "link-"+key(dir))
	os.Remove(tmp)
	if err := os.Symlink(filepath.Base(dir), tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.path("kernel", arch)); err != nil {
		return err
	}
	return syncDir(s.path("kernel"))
}
