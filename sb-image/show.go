package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"sb/lib/say"

	"github.com/spf13/pflag"
)

func platformFlag(flags *pflag.FlagSet) *string {
	return flags.String("platform", hostPlatform(), "the image for this system and processor")
}

// one parses the flags and returns the single image that is named.
func one(flags *pflag.FlagSet, args []string) (*store, record, string, error) {
	platform := platformFlag(flags)
	if err := say.Parse(flags, args); err != nil {
		return nil, record{}, "", err
	}
	if flags.NArg() != 1 {
		return nil, record{}, "", say.Usage("%s takes one reference or digest, not %d", flags.Name(), flags.NArg())
	}
	if err := checkPlatform(*platform); err != nil {
		return nil, record{}, "", err
	}
	s, err := openStore()
	if err != nil {
		return nil, record{}, "", err
	}
	rec, name, err := s.find(flags.Arg(0), *platform)
	var gone *absent
	if errors.As(err, &gone) {
		err = say.WithHint(err, "%s", gone.fetch)
	}
	return s, rec, name, err
}

func runPath(args []string) error {
	s, rec, _, err := one(say.Flags("sb-image path", "[--platform OS/ARCH] REF|DIGEST", `
Prints where the root file system of an image lies. Whoever uses it holds a
shared lock on it (flock), so that gc leaves it there.`), args)
	if err != nil {
		return err
	}
	fmt.Println(s.imageFile(rec.Digest, "erofs"))
	return nil
}

// shown is what show prints. The keys of config are those of an image's configuration.
type shown struct {
	Ref      string     `json:"ref"` // "" if it was asked for by digest
	Digest   string     `json:"digest"`
	Manifest string     `json:"manifest,omitempty"`
	Platform string     `json:"platform"`
	Path     string     `json:"path"`
	Size     int64      `json:"size"` // of the file, in bytes
	Created  *time.Time `json:"created"`
	Config   runConfig  `json:"config"`
}

func runShow(args []string) error {
	s, rec, name, err := one(say.Flags("sb-image show", "[--platform OS/ARCH] REF|DIGEST",
		"Prints what an image is and how it wants to be run, as JSON."), args)
	if err != nil {
		return err
	}
	file := s.imageFile(rec.Digest, "erofs")
	st, err := os.Stat(file)
	if err != nil {
		return err
	}
	out := say.JSON(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(shown{name, rec.Digest, rec.Manifest, rec.Platform, file, st.Size(), rec.Created, rec.Config})
}
