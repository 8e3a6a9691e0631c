package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sb/lib/say"
)

// saved is one image in manifest.json, as docker save writes it.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// openDockerArchive reads what docker save or podman save wrote.
func openDockerArchive(file, name, platform string) (*source, error) {
	a, err := openArchive(file)
	if err != nil {
		return nil, err
	}
	src, err := fromDockerArchive(a, name, platform)
	if err != nil {
		a.Close()
		return nil, err
	}
	src.file = a
	return src, nil
}

func fromDockerArchive(a *archive, name, platform string) (*source, error) {
	text, err := readSmall(a.open, "manifest.json", maxManifest)
	if err != nil {
		return nil, say.WithHint(fmt.Errorf("it is no archive of docker save: %w", err),
			"oci-archive:FILE reads an archive of an OCI layout, tar:FILE one of a root file system")
	}
	var all []saved
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read manifest.json: %w", err)
	}
	image, err := findSaved(all, name)
	if err != nil {
		return nil, err
	}
	config, err := readSmall(a.open, image.Config, maxConfig)
	if err != nil {
		return nil, err
	}
	conf, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	if err := conf.check(platform, len(image.Layers)); err != nil {
		return nil, err
	}
	src := &source{config: config}
	for _, l := range image.Layers {
		src.layers = append(src.layers, layer{name: l, size: -1,
			open: func(context.Context) (io.ReadCloser, error) { return a.open(l) }})
	}
	return src, nil
}

// findSaved finds an image by one of its names, which mean the same in full and in short.
func findSaved(all []saved, name string) (saved, error) {
	var names []string
	for _, image := range all {
		for _, tag := range image.RepoTags {
			names = append(names, tag)
			if sameName(tag, name) {
				return image, nil
			}
		}
	}
	switch {
	case name != "" || len(all) == 0:
		return saved{}, errUnknownTag(name, names)
	case len(all) > 1:
		return saved{}, say.WithHint(errors.New("it holds several images, and no name says which"), "it has: %s", strings.Join(names, ", "))
	}
	return all[0], nil
}

func sameName(a, b string) bool {
	if a == b {
		return true
	}
	x, err := parseDocker(a)
	if err != nil {
		return false
	}
	y, err := parseDocker(b)
	return err == nil && x.text == y.text
}
