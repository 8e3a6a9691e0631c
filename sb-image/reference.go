package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"sb/lib/say"
)

// reference is a parsed REF.
type reference struct {
	text string // in full: two ways to write one thing have one text
	open func(ctx context.Context, platform string, insecure bool) (*source, error)
}

// parseRef understands skopeo's transports (containers-transports(5)), as far
// as we have them, and two of our own.
func parseRef(text string) (reference, error) {
	if text == "" {
		return reference{}, say.Usage("the reference is empty")
	}
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "docker":
		if rest, ok := strings.CutPrefix(rest, "//"); ok {
			return parseDocker(rest)
		}
	case "oci":
		return parseFile(text, scheme, rest, openLayout)
	case "oci-archive":
		return parseFile(text, scheme, rest, openLayoutArchive)
	case "docker-archive":
		return parseFile(text, scheme, rest, openDockerArchive)
	case "tar":
		return parseTar(text, rest)
	case "bootstrap":
		return parseBootstrap(text, rest)
	case "env":
		return parseEnv(text, rest)
	case "docker-daemon", "containers-storage", "docker-tar":
		return reference{}, say.WithHint(say.Usage("%s: the transport %s: is not known", text, scheme),
			"docker save or podman save makes a file for docker-archive:FILE")
	}
	return parseDocker(text)
}

// parseFile understands PATH[:TAG], where PATH has no colon.
func parseFile(text, scheme, rest string, open func(path, tag, platform string) (*source, error)) (reference, error) {
	path, tag, _ := strings.Cut(rest, ":")
	if path == "" {
		return reference{}, say.Usage("%s names no file", text)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return reference{}, err
	}
	full := scheme + ":" + abs
	if tag != "" {
		full += ":" + tag
	}
	return reference{full, func(_ context.Context, platform string, _ bool) (*source, error) {
		return open(abs, tag, platform)
	}}, nil
}

func parseTar(text, rest string) (reference, error) {
	if rest == "" {
		return reference{}, say.Usage("%s names no file", text)
	}
	abs, err := filepath.Abs(rest)
	if err != nil {
		return reference{}, err
	}
	return reference{"tar:" + abs, func(context.Context, string, bool) (*source, error) {
		return openTar(abs)
	}}, nil
}

func errUnknownTag(tag string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("it holds no image")
	}
	return say.WithHint(fmt.Errorf("it holds no image called %q", tag), "it has: %s", strings.Join(known, ", "))
}
