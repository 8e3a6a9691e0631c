package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sb/lib/binding"
	"sb/lib/dirs"
	"sb/lib/manifest"
	"sb/lib/profile"
	"sb/lib/say"
)

// config is config.toml in the configuration directory: what holds for every
// sandbox of this user. A deny rule of it is lifted by no flag.
type config struct {
	Rules  manifest.Rules    `toml:"rules"`
	CPUs   int               `toml:"cpus"`
	Memory manifest.Size     `toml:"memory"`
	Disk   manifest.Size     `toml:"disk"`
	Images map[string]string `toml:"images"` // another image for a profile, by its name

	Network   profile.Network   `toml:"network"`
	Workspace profile.Workspace `toml:"workspace"`

	Terminal string `toml:"terminal"` // as --terminal

	Undo    bool    `toml:"undo"` // as --undo
	Records records `toml:"records"`

	Secrets []string `toml:"secrets"` // what every sandbox is given, as by --secret
	binding.Settings

	path string
}

// profiles are the user's, beside the built-in ones.
func (c *config) profiles() profile.Set { return profile.Open(filepath.Dir(c.path)) }

// profileNames lists them, for an error.
func (c *config) profileNames() string {
	names, err := c.profiles().Names()
	if err != nil {
		return err.Error()
	}
	return strings.Join(names, ", ")
}

// loadConfig reads it; a file that is not there is an empty one.
func loadConfig() (*config, error) {
	dir, err := dirs.Config()
	if err != nil {
		return nil, err
	}
	c := &config{path: filepath.Join(dir, "config.toml")}
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if err := manifest.Decode(c.path, text, c); err != nil {
		return nil, err
	}
	return c, c.check()
}

// check says what is out of bounds here, rather than in what is made of it.
func (c *config) check() error {
	var err error
	if c.CPUs != 0 {
		err = checkCPUs("cpus", c.CPUs)
	}
	if err == nil && c.Memory != 0 {
		err = checkMemory("memory", c.Memory)
	}
	if err == nil && c.Disk != 0 {
		err = checkDisk("disk", c.Disk)
	}
	if err == nil {
		err = checkTerminal("terminal", c.Terminal)
	}
	for name := range c.Images {
		if _, _, perr := c.profiles().Text(name); err == nil && perr != nil {
			err = say.Usage("images: %q is no profile (there is: %s)", name, c.profileNames())
		}
	}
	if err == nil {
		err = c.Records.check()
	}
	if err == nil {
		if err = c.Workspace.Check(); err != nil {
			err = say.Usage("workspace: %w", err)
		}
	}
	if err == nil {
		err = c.Settings.Check()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	return nil
}

// The bounds of a machine, under the name of the flag or the key.

func checkCPUs(name string, n int) error {
	if n < 1 || n > manifest.MaxCPUs {
		return say.Usage("%s: %d is not between 1 and %d", name, n, manifest.MaxCPUs)
	}
	return nil
}

func checkMemory(name string, n manifest.Size) error {
	if n < manifest.MinMemory {
		return say.Usage("%s: %s is less than the %s that a machine needs to boot", name, n, manifest.Size(manifest.MinMemory))
	}
	if all := hostMemory(); all > 0 && n > all {
		return say.Usage("%s: %s is more than the %s that this host has", name, n, all>>20<<20)
	}
	return nil
}

func checkDisk(name string, n manifest.Size) error {
	if n%(1<<20) != 0 {
		return say.Usage("%s: %s is no whole number of megabytes: write it as 16g", name, n)
	}
	if n < 1<<30 || n > manifest.MaxDisk {
		return say.Usage("%s: %s is not between 1g and 1t", name, n)
	}
	return nil
}
