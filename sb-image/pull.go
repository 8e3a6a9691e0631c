package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"

	"sb/lib/say"
)

func runPull(args []string) error {
	flags := say.Flags("sb-image pull", "[--platform OS/ARCH] REF", `
Fetches an image, or makes it, and prints its digest. What is there already is
not fetched again, but the registry is always asked whether the tag moved.

REF is docker://NAME (the default), oci:DIR[:TAG], oci-archive:FILE[:TAG],
docker-archive:FILE[:REF], tar:FILE, or bootstrap:SUITE[?include=PACKAGE,…].`)
	platform := platformFlag(flags)
	insecure := flags.Bool("insecure", false, "let the registry speak plain HTTP, or show any certificate")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return say.Usage("pull takes one reference, not %d", flags.NArg())
	}
	if err := checkPlatform(*platform); err != nil {
		return err
	}
	name, err := parseRef(flags.Arg(0))
	if err != nil {
		return err
	}
	if name.open == nil {
		return say.Usage("%s was made here, and is nowhere to be fetched from", name.text)
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	return untilSignal(func(ctx context.Context) error {
		digest, err := s.pull(ctx, name, *platform, *insecure)
		if err != nil {
			return fmt.Errorf("pull %s: %w", flags.Arg(0), err)
		}
		fmt.Println(digest)
		return nil
	})
}

func hostPlatform() string { return "linux/" + runtime.GOARCH }

func checkPlatform(p string) error {
	parts := strings.Split(p, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "linux" || parts[1] == "" {
		return say.Usage("--platform is %q, not linux/ARCH such as linux/amd64", p)
	}
	return nil
}

// pull makes sure that the image is in the store, notes what its name stands for
// now, and returns its digest.
func (s *store) pull(ctx context.Context, name reference, platform string, insecure bool) (string, error) {
	src, err := name.open(ctx, platform, insecure)
	if err != nil {
		return "", err
	}
	defer src.close()
	// One at a time works on an image; whoever waited finds it there.
	lock, err := s.lock(ctx, cmp.Or(src.digest(), name.text))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	now := ref{Ref: name.text, Platform: platform, Pulled: time.Now().UTC()}
	now.Digest, now.Origin, err = s.have(ctx, src, now)
	if errors.Is(err, fs.ErrNotExist) {
		var out *temp
		if out, err = s.temp("image"); err != nil {
			return "", err
		}
		defer out.discard()
		now.Digest, err = s.build(ctx, src, out, platform, name.text)
		if err == nil && src.making != nil {
			now.Origin = src.making.installed()
		}
	}
	if err != nil {
		return "", err
	}
	if err := s.setRef(now); err != nil {
		return "", err
	}
	// An image that was there without a name may have gone before it got one.
	if _, err := s.image(now.Digest); err != nil {
		return "", say.WithHint(fmt.Errorf("it was removed meanwhile: %w", err), "pull it again")
	}
	return now.Digest, nil
}

// have returns the digest of the image that src would give, if the store has
// it: by its digest, or by what it would be made from.
func (s *store) have(ctx context.Context, src *source, now ref) (digest, origin string, err error) {
	if digest := src.digest(); digest != "" {
		_, err := s.image(digest)
		return digest, "", err
	}
	old, err := s.ref(now.Ref, now.Platform)
	if err != nil || src.making == nil || old.Origin == "" {
		return "", "", cmp.Or(err, fs.ErrNotExist)
	}
	if _, err := s.image(old.Digest); err != nil {
		return "", "", err
	}
	if origin, err = src.making.wouldInstall(ctx); err != nil {
		return "", "", err
	}
	if origin != old.Origin {
		return "", "", fs.ErrNotExist
	}
	return old.Digest, origin, nil
}
