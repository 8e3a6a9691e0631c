package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"sb/lib/say"
)

func runAdd(args []string) error {
	flags := say.Flags("sb-image add", "[--like REF|DIGEST] env:NAME < ARCHIVE", `
Keeps a root file system, a tar archive on stdin, as an image under a name, and
prints its digest. The archive must come to its end: one that is cut short is not
kept. What had the name before has it no more.`)
	like := flags.String("like", "", "take over how the image `REF|DIGEST` wants to be run")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return say.Usage("add takes one name, not %d", flags.NArg())
	}
	name, err := parseRef(flags.Arg(0))
	if err != nil {
		return err
	}
	if name.open != nil {
		return say.WithHint(say.Usage("%s is not a name of env:", flags.Arg(0)), "sb-image pull fetches an image")
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	var conf runConfig
	if *like != "" {
		rec, _, err := s.find(*like, hostPlatform())
		if err != nil {
			return err
		}
		conf = rec.Config
	}
	return untilSignal(func(ctx context.Context) error {
		digest, err := s.take(ctx, name, conf, os.Stdin)
		if err != nil {
			return fmt.Errorf("add %s: %w", name.text, err)
		}
		fmt.Println(digest)
		return nil
	})
}

var envName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,100}$`)

// parseEnv understands the name of an image that was added, and can only be.
func parseEnv(text, rest string) (reference, error) {
	if !envName.MatchString(rest) {
		return reference{}, say.Usage("%s: %q is no name", text, rest)
	}
	return reference{text: "env:" + rest}, nil
}

// take keeps what an archive has.
func (s *store) take(ctx context.Context, name reference, conf runConfig, archive io.Reader) (string, error) {
	out, err := s.temp("image")
	if err != nil {
		return "", err
	}
	defer out.discard()
	whole := &wholeTar{r: archive}
	src := &source{run: conf, layers: []layer{{name: name.text, size: -1,
		open: func(context.Context) (io.ReadCloser, error) { return whole, nil }}}}
	digest, err := s.build(ctx, src, out, hostPlatform(), name.text)
	if err != nil {
		return "", err
	}
	return digest, s.setRef(ref{Ref: name.text, Platform: hostPlatform(), Digest: digest, Pulled: time.Now().UTC()})
}

// wholeTar is a tar archive that ends only where archives end: with two blocks of
// zeros (POSIX.1-2001, pax, "ustar Interchange Format").
type wholeTar struct {
	r    io.Reader
	last []byte // the last bytes that were read
}

const tarEnd = 1024

// Read implements io.Reader.
func (w *wholeTar) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	w.last = append(w.last, b[:n]...)
	w.last = append(w.last[:0], w.last[max(0, len(w.last)-tarEnd):]...)
	if err == io.EOF && !bytes.Equal(w.last, make([]byte, tarEnd)) {
		err = errors.New("the archive is cut short")
	}
	return n, err
}

// Close implements io.Closer.
func (w *wholeTar) Close() error { return nil }
