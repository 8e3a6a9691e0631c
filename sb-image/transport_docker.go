package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sb/lib/say"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// parseDocker reads an image's name as Docker does: debian is
// docker.io/library/debian:latest.
func parseDocker(text string) (reference, error) {
	parsed, err := name.ParseReference(text)
	if err != nil {
		return reference{}, say.WithHint(say.Usage("%q is no name of an image: %v", text, err),
			"names are like debian:bookworm-slim or ghcr.io/owner/image@sha256:…")
	}
	full := parsed.Name()
	if rest, ok := strings.CutPrefix(full, name.DefaultRegistry+"/"); ok {
		full = "docker.io/" + rest
	}
	return reference{full, func(ctx context.Context, platform string, insecure bool) (*source, error) {
		return openRegistry(ctx, parsed, platform, insecure)
	}}, nil
}

// registry is where one image's parts come from.
type registry struct {
	repo   name.Repository
	puller *remote.Puller
}

func openRegistry(ctx context.Context, ref name.Reference, platform string, insecure bool) (*source, error) {
	if insecure {
		var err error
		if ref, err = name.ParseReference(ref.Name(), name.Insecure); err != nil {
			return nil, err
		}
	}
	puller, err := remote.NewPuller(
		remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(newGuard(ref.Context().RegistryStr(), insecure)),
		remote.WithUserAgent("sb-image/"+say.Version),
		remote.WithJobs(parallel),
	)
	if err != nil {
		return nil, err
	}
	r := &registry{ref.Context(), puller}
	top, err := puller.Get(ctx, ref)
	if err != nil {
		return nil, explain(err, ref)
	}
	if len(top.Manifest) > maxManifest {
		return nil, fmt.Errorf("its manifest has %d bytes, and %d is the limit", len(top.Manifest), maxManifest)
	}
	src, err := fromManifest(ctx, top.Manifest, platform, r.get)
	if err != nil {
		return nil, explain(err, ref)
	}
	return src, r.prefetch(src)
}

// get opens a blob of the image's own repository.
func (r *registry) get(ctx context.Context, d descriptor) (io.ReadCloser, error) {
	if !isDigest(d.Digest) {
		return nil, fmt.Errorf("%q is no sha256 digest", d.Digest)
	}
	if strings.Contains(d.MediaType, "manifest") || strings.Contains(d.MediaType, "index") {
		top, err := r.puller.Get(ctx, r.repo.Digest(d.Digest))
		if err != nil {
			return nil, err
		}
		return io.NopCloser(strings.NewReader(string(top.Manifest))), nil
	}
	l, err := r.puller.Layer(ctx, r.repo.Digest(d.Digest))
	if err != nil {
		return nil, err
	}
	return l.Compressed()
}

// explain puts the usual answers of a registry into words.
func explain(err error, ref name.Reference) error {
	var answer *transport.Error
	switch {
	case errors.Is(err, errPlain):
		return say.WithHint(err, "--insecure lets it")
	case !errors.As(err, &answer):
		return err
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the registry %s has no %s: %w", ref.Context().RegistryStr(), ref.Identifier(), err)
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return say.WithHint(fmt.Errorf("the registry %s refuses: %w", ref.Context().RegistryStr(), err),
			"there is no such image, or it takes a docker login %s", ref.Context().RegistryStr())
	case answer.StatusCode == http.StatusTooManyRequests:
		return say.WithHint(err, "a docker login to the registry raises its limit")
	}
	return err
}
