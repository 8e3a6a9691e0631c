package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"sb/lib/manifest"
)

//go:embed profiles/*.toml
var builtin embed.FS

// profile is a kind of sandbox by its name: what to run, in what, and what that
// reaches.
type profile struct {
	Image   []string          `toml:"image"` // the first that this host can make
	Command []string          `toml:"command"`
	Env     map[string]string `toml:"env"`
	User    string            `toml:"user"`
	Rules   manifest.Rules    `toml:"rules"`
	Secrets []string          `toml:"secrets"` // as --secret
	Network netChoices        `toml:"network"`

	Workspace workspaceChoices `toml:"workspace"`
}

// findProfile returns the profile of that name; false if there is none.
func findProfile(name string) (*profile, bool, error) {
	file := "profiles/" + name + ".toml"
	text, err := fs.ReadFile(builtin, file)
	if err != nil || strings.ContainsAny(name, "/\\") {
		return nil, false, nil
	}
	var p profile
	if err := manifest.Decode(file, text, &p); err != nil {
		return nil, false, err
	}
	return &p, true, nil
}

// profileNames lists them, for an error.
func profileNames() string {
	files, _ := fs.Glob(builtin, "profiles/*.toml")
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "profiles/"), ".toml")
	}
	return strings.Join(files, ", ")
}

// image picks the image: bootstrap: needs a Debian-like host's tools.
func (p *profile) image() (string, error) {
	for _, ref := range p.Image {
		if strings.HasPrefix(ref, "bootstrap:") {
			if _, err := exec.LookPath("mmdebstrap"); err != nil {
				continue
			}
		}
		return ref, nil
	}
	return "", fmt.Errorf("the profile names no image that this host can make")
}
