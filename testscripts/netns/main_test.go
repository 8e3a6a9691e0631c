// Package netns attacks the built gate and resolver with a real Linux kernel and
// real tools at native speed: a network namespace is the guest, a pump between
// its TAP device and the gate's wire the machine. The Internet is the one of
// sb/testscripts/world.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sb/testscripts/world"
)

// binVar is where the tools are; toolsVar where what this package builds is.
const (
	binVar   = "SB_BIN"
	toolsVar = "SB_NETNS_TOOLS"
)

func TestMain(m *testing.M) {
	if os.Getenv(toolsVar) == "" && os.Geteuid() == 0 {
		dir, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, "netns:", err)
			os.Exit(1)
		}
		defer os.RemoveAll(dir)
	}
	os.Exit(world.Main(m.Run))
}

// build makes the tools, outside the world: it has no module proxy.
func build() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	if os.Getenv(binVar) == "" {
		if out, err := exec.Command("make", "-s", "-C", root, "build").CombinedOutput(); err != nil {
			return "", fmt.Errorf("build: %w\n%s", err, out)
		}
		os.Setenv(binVar, filepath.Join(root, "bin"))
	}
	// What stands in for one of the tools must be of their version.
	out, err := exec.Command(filepath.Join(os.Getenv(binVar), "sb-run"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("sb-run --version: %w", err)
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	dir, err := os.MkdirTemp("", "sb-netns-")
	if err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{"tapwire": "../tapwire", "probe": "../live/probe", "tapvm": "../tapvm"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X sb/lib/say.Version="+version, "-o", filepath.Join(dir, name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	os.Chmod(dir, 0o755)
	return dir, os.Setenv(toolsVar, dir)
}
