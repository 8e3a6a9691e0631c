package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"sb/lib/dirs"
	"sb/lib/manifest"
)

// config is config.toml in the configuration directory: what holds for every
// sandbox of this user. A deny rule of it is lifted by no flag.
type config struct {
	Rules  manifest.Rules    `toml:"rules"`
	CPUs   int               `toml:"cpus"`
	Memory manifest.Size     `toml:"memory"`
	Disk   manifest.Size     `toml:"disk"`
	Images map[string]string `toml:"images"` // another image for one that a profile names

	path string
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
		return nil, err
	}
	return c, manifest.Decode(c.path, text, c)
}
