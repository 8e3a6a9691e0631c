package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"sb/lib/say"
)

// A layout is a directory, or an archive of one, with the blobs of images under
// their digests, and index.json that names them (OCI image specification,
// image-layout.md).
type files func(name string) (io.ReadCloser, error)

func openLayout(dir, tag, platform string) (*source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	src, err := fromLayout(func(name string) (io.ReadCloser, error) { return openRegular(root, name) }, tag, platform)
	if err != nil {
		root.Close()
		return nil, err
	}
	src.file = root
	return src, nil
}

// openRegular does not wait for the other end of a FIFO.
func openRegular(root *os.Root, name string) (io.ReadCloser, error) {
	st, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	return root.Open(name)
}

func openLayoutArchive(file, tag, platform string) (*source, error) {
	a, err := openArchive(file)
	if err != nil {
		return nil, err
	}
	src, err := fromLayout(a.open, tag, platform)
	if err != nil {
		a.Close()
		return nil, err
	}
	src.file = a
	return src, nil
}

func fromLayout(open files, tag, platform string) (*source, error) {
	text, err := readSmall(open, "index.json", maxManifest)
	if err != nil {
		return nil, say.WithHint(fmt.Errorf("it is no OCI image layout: %w", err), "docker save makes archives for docker-archive:FILE")
	}
	var index manifest
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("read index.json: %w", err)
	}
	if index.Manifests, err = tagged(index.Manifests, tag); err != nil {
		return nil, err
	}
	get := func(_ context.Context, d descriptor) (io.ReadCloser, error) {
		return open("blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:"))
	}
	d, err := choose(index.Manifests, platform)
	if err != nil {
		return nil, err
	}
	if text, err = readBlob(context.Background(), d, maxManifest, get); err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return fromManifest(context.Background(), text, platform, get)
}

// tagged returns the manifests that tag names; without one, all, if they are
// of one image.
func tagged(all []descriptor, tag string) ([]descriptor, error) {
	const name = "org.opencontainers.image.ref.name"
	var names []string
	var found []descriptor
	for _, d := range all {
		if n := d.Annotations[name]; n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
		if tag == "" || d.Annotations[name] == tag {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 0:
		return nil, errUnknownTag(tag, names)
	case tag == "" && len(names) > 1:
		return nil, say.WithHint(errors.New("it holds several images, and no tag says which"), "it has: %s", strings.Join(names, ", "))
	}
	return found, nil
}

func readSmall(open files, name string, limit int64) ([]byte, error) {
	r, err := open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return text, err
}
