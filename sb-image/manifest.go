package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sb/lib/say"
	"sb/sb-image/flatten"
)

// What a registry or an archive says of an image (OCI image specification,
// descriptor.md, manifest.md, image-index.md; Docker's own forms have the same
// fields). Addresses of layers elsewhere ("urls") are not read: a layer comes
// from where its image does.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		Variant      string `json:"variant"`
	} `json:"platform"`
}

type manifest struct {
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"` // of an index
	Config    *descriptor  `json:"config"`    // of an image
	Layers    []descriptor `json:"layers"`    // of an image
}

// Bounds of what is read whole. Registries refuse manifests above 4 MiB.
const (
	maxManifest = 4 << 20
	maxConfig   = 8 << 20
	maxIndexes  = 4 // an index in an index
)

// getBlob opens a thing by its descriptor. Whoever reads checks the digest.
type getBlob func(ctx context.Context, d descriptor) (io.ReadCloser, error)

// fromManifest follows a manifest or an index to the image for a platform.
func fromManifest(ctx context.Context, text []byte, platform string, get getBlob) (*source, error) {
	for range maxIndexes {
		m, err := parseManifest(text)
		if err != nil {
			return nil, err
		}
		if m.Config != nil {
			return fromImage(ctx, text, m, platform, get)
		}
		d, err := choose(m.Manifests, platform)
		if err != nil {
			return nil, err
		}
		if text, err = readBlob(ctx, d, maxManifest, get); err != nil {
			return nil, fmt.Errorf("read the manifest for %s: %w", platform, err)
		}
	}
	return nil, fmt.Errorf("more than %d indexes lie one in the other", maxIndexes)
}

// parseManifest refuses what could be read in two ways (CVE-2021-41190).
func parseManifest(text []byte) (m manifest, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read the manifest: %w", err)
	}
	isIndex, isImage := m.Manifests != nil, m.Config != nil || m.Layers != nil
	named := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(m.MediaType, p) {
				return true
			}
		}
		return false
	}
	switch {
	case isIndex == isImage, isImage && m.Config == nil:
		return m, errors.New("the manifest is neither that of an image nor an index of images")
	case isIndex && named("image.manifest", "distribution.manifest.v"), isImage && named("image.index", "manifest.list"):
		return m, fmt.Errorf("the manifest calls itself %s and is something else", m.MediaType)
	case len(m.Layers) > flatten.MaxLayers:
		return m, fmt.Errorf("the image has %d layers, and %d is the limit", len(m.Layers), flatten.MaxLayers)
	}
	return m, nil
}

// choose finds the image for a platform in an index. Of several the first is
// taken, as everywhere.
func choose(list []descriptor, platform string) (descriptor, error) {
	want := strings.Split(platform+"/", "/")
	var others []string
	for _, d := range list {
		p := d.Platform
		if p == nil {
			if len(list) == 1 {
				return d, nil
			}
			continue
		}
		if p.OS == want[0] && p.Architecture == want[1] && (want[2] == "" || want[2] == p.Variant) {
			return d, nil
		}
		if p.OS != "unknown" { // what is no image: attestations
			others = append(others, strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/"))
		}
	}
	return descriptor{}, say.WithHint(fmt.Errorf("there is no image for %s", platform),
		"there are: %s", strings.Join(others, ", "))
}

// fromImage reads the configuration of an image and lists its layers.
func fromImage(ctx context.Context, text []byte, m manifest, platform string, get getBlob) (*source, error) {
	if t := m.Config.MediaType; !strings.Contains(t, "image.v1+json") && !strings.Contains(t, "image.config.v1+json") && t != "" {
		return nil, fmt.Errorf("it is no image of a root file system, but of type %s", t)
	}
	config, err := readBlob(ctx, *m.Config, maxConfig, get)
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	conf, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	if err := conf.check(platform, len(m.Layers)); err != nil {
		return nil, err
	}
	src := &source{manifest: digestOf(text), config: config}
	for _, d := range m.Layers {
		if !isDigest(d.Digest) || d.Size < 0 {
			return nil, fmt.Errorf("a layer has the digest %q and the size %d", d.Digest, d.Size)
		}
		src.layers = append(src.layers, layer{name: d.Digest, digest: d.Digest, size: d.Size,
			open: func(ctx context.Context) (io.ReadCloser, error) { return get(ctx, d) }})
	}
	return src, nil
}

// check says why an image cannot be used.
func (c imageConfig) check(platform string, layers int) error {
	want := strings.Split(platform, "/")
	switch {
	case c.OS != want[0] || c.Architecture != want[1]:
		return say.WithHint(fmt.Errorf("it is an image for %s, not for %s", c.platform(), platform), "sb-image pull --platform %s stores it all the same; no machine of this host runs it", c.platform())
	case len(c.RootFS.DiffIDs) != layers:
		return fmt.Errorf("it has %d layers, and its configuration names %d", layers, len(c.RootFS.DiffIDs))
	case layers == 0:
		return errors.New("it has no layers")
	}
	return nil
}

// readBlob reads a small thing whole, if it has the digest and the size that it should.
func readBlob(ctx context.Context, d descriptor, limit int64, get getBlob) ([]byte, error) {
	if !isDigest(d.Digest) {
		return nil, fmt.Errorf("%q is no sha256 digest", d.Digest)
	}
	if d.Size > limit {
		return nil, fmt.Errorf("%s has %d bytes, and %d is the limit", d.Digest, d.Size, limit)
	}
	r, err := get(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) != d.Size || digestOf(text) != d.Digest {
		return nil, fmt.Errorf("%s is corrupt: it has %d bytes with the digest %s", d.Digest, len(text), digestOf(text))
	}
	return text, nil
}
