//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sb/lib/confine/confinetest"
)

// confinedMain is a copy of the test program that does what sb-dns does before it
// is ready.
func confinedMain() int {
	return confinetest.Main(confineSelf, append(confinetest.Usual(), confinetest.Dial("udp"), confinetest.Open("hosts", "/etc/hosts"))...)
}

// TestConfined: once its wires are open sb-dns opens the resolver's files and no
// others, and starts no program; it still reaches a nameserver.
func TestConfined(t *testing.T) {
	confinetest.Run(t, inHost+"=confined", "open: refused", "write: refused", "exec: refused", "hosts: yes", "udp: yes", "tcp: yes")
}

// The directories of the resolver's files, and of what they are links to; none
// that is not there.
func TestResolverDirs(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"etc", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(dir, "run/stub.conf"), nil, 0o644)
	os.Symlink("../run/stub.conf", filepath.Join(dir, "etc/resolv.conf"))
	got := resolverDirs([]string{filepath.Join(dir, "etc/resolv.conf"), filepath.Join(dir, "etc/hosts"), filepath.Join(dir, "none/hosts")})
	if want := []string{filepath.Join(dir, "etc"), filepath.Join(dir, "run")}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
