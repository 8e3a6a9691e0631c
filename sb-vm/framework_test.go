package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/manifest"
	"sb/lib/say"
)

// hints are what an error tells its reader to do.
func hints(err error) string {
	var e *say.Error
	if errors.As(err, &e) {
		return strings.Join(e.Hints, "\n")
	}
	return ""
}

func manifestMachine(dir string) manifest.Machine {
	return manifest.Machine{CPUs: 2, Memory: 512 << 20, Accel: "auto", Kernel: filepath.Join(dir, "kernel"),
		Base: filepath.Join(dir, "base"), Disk: filepath.Join(dir, "disk")}
}

// What the framework cannot do is refused with a reason; what it can is not.
func TestFrameworkLacks(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"work/sub", "state/run/x", "state-of-things", "far"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"link": "state", "deep": "state/run/x", "work/out": "far"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	ours := []string{filepath.Join(dir, "state"), filepath.Join(dir, "not-made-yet", "config")}
	base := func() *manifest.Manifest {
		return &manifest.Manifest{Network: manifest.Network{MTU: 1500}, Machine: manifestMachine(dir),
			Shares: []manifest.Share{{Host: filepath.Join(dir, "work"), Guest: "/w"}}}
	}
	share := func(path string) func(*manifest.Manifest) {
		return func(m *manifest.Manifest) { m.Shares[0].Host = filepath.Join(dir, path) }
	}
	for what, c := range map[string]struct {
		change func(*manifest.Manifest)
		want   string // "": allowed
	}{
		"nothing":                       {func(*manifest.Manifest) {}, ""},
		"kvm":                           {func(m *manifest.Manifest) { m.Machine.Accel = "kvm" }, "accel kvm"},
		"tcg":                           {func(m *manifest.Manifest) { m.Machine.Accel = "tcg" }, "accel tcg"},
		"the smallest MTU":              {func(m *manifest.Manifest) { m.Network.MTU = manifest.MinMTU }, ""},
		"a large MTU":                   {func(m *manifest.Manifest) { m.Network.MTU = 1501 }, "1501 is more than the 1500"},
		"a read-only share":             {func(m *manifest.Manifest) { m.Shares[0].ReadOnly = true }, ""},
		"a hidden file":                 {func(m *manifest.Manifest) { m.Shares[0].Hidden = []string{".env"} }, "cannot hide .env"},
		"a hidden file, read-only":      {func(m *manifest.Manifest) { m.Shares[0].Hidden, m.Shares[0].ReadOnly = []string{".env"}, true }, "cannot hide .env"},
		"a protected file":              {func(m *manifest.Manifest) { m.Shares[0].Protected = []string{".git/hooks"} }, "cannot protect .git/hooks"},
		"a protected file, read-only":   {func(m *manifest.Manifest) { m.Shares[0].Protected, m.Shares[0].ReadOnly = []string{".git/hooks"}, true }, ""},
		"a shadowed file":               {func(m *manifest.Manifest) { m.Shares[0].Shadowed = []string{".git/config"} }, "cannot protect .git/config"},
		"a directory below":             {share("work/sub"), ""},
		"our own":                       {share("state"), "a directory of sb's own"},
		"a part of our own":             {share("state/run"), "a directory of sb's own"},
		"what holds our own":            {share(""), "a directory of sb's own"},
		"a link to our own":             {share("link"), "a directory of sb's own"},
		"a part through a link":         {share("link/run"), "a directory of sb's own"},
		"a link deep into it":           {share("deep"), "a directory of sb's own"},
		"a link elsewhere":              {share("work/out"), ""},
		"what has our name in front":    {share("state-of-things"), ""},
		"the second share is looked at": {func(m *manifest.Manifest) { m.Shares = append(m.Shares, manifest.Share{Host: ours[0]}) }, "a directory of sb's own"},
	} {
		m := base()
		c.change(m)
		err := frameworkLacks(m, ours)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want …%s…", what, err, c.want)
		}
	}
}
