package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// ref is refs/HEX.json: what a reference stood for when it was last pulled.
type ref struct {
	Ref      string    `json:"ref"` // in full, as parseRef writes it
	Platform string    `json:"platform"`
	Digest   string    `json:"digest"`
	Origin   string    `json:"origin,omitempty"` // what it was made from, if it was made here
	Pulled   time.Time `json:"pulled"`
}

func (s *store) refFile(name, platform string) string {
	return s.path("refs", key(name+"\n"+platform)+".json")
}

// ref finds what name stands for.
func (s *store) ref(name, platform string) (ref, error) {
	var r ref
	return r, readJSON(s.refFile(name, platform), &r)
}

func (s *store) setRef(r ref) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.write(s.refFile(r.Ref, r.Platform), text)
}

// refs lists all references, sorted.
func (s *store) refs() ([]ref, error) {
	files, err := filepath.Glob(s.path("refs", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []ref
	for _, f := range files {
		var r ref
		if err := readJSON(f, &r); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	sort.Slice(all, func(i, j int) bool {
		return all[i].Ref+"\n"+all[i].Platform < all[j].Ref+"\n"+all[j].Platform
	})
	return all, nil
}

func readJSON(file string, to any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return say.WithHint(fmt.Errorf("read %s: %w", file, err), "remove the file, and pull the image again")
	}
	return nil
}

// imageFile is where a file of the image with that digest lies.
func (s *store) imageFile(digest, kind string) string {
	return s.path("images", strings.TrimPrefix(digest, "sha256:")+"."+kind)
}

// image reads what is known of the image with that digest.
func (s *store) image(digest string) (record, error) {
	var r record
	if !isDigest(digest) {
		return r, fmt.Errorf("%q is no digest", digest)
	}
	return r, readJSON(s.imageFile(digest, "json"), &r)
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// images lists the digests of all images, sorted.
func (s *store) images() ([]string, error) {
	files, err := filepath.Glob(s.path("images", "*.json"))
	var all []string
	for _, f := range files {
		all = append(all, "sha256:"+strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	return all, err
}

// find returns the image that arg names: by its digest, its manifest's digest,
// the first twelve digits or more of either, or by a reference.
func (s *store) find(arg, platform string) (record, string, error) {
	if prefix, ok := strings.CutPrefix(arg, "sha256:"); ok && len(prefix) >= 12 && strings.Trim(prefix, "0123456789abcdef") == "" {
		r, err := s.findDigest(arg)
		return r, "", err
	}
	name, err := parseRef(arg)
	if err != nil {
		return record{}, "", err
	}
	r, err := s.ref(name.text, platform)
	if err == nil {
		rec, err := s.image(r.Digest)
		if !errors.Is(err, fs.ErrNotExist) {
			return rec, r.Ref, err
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, "", err
	}
	return record{}, "", notThere(arg, platform)
}

// absent is the error about an image that is not in the store.
type absent struct {
	what  string
	fetch string // the hint for those who want it to be there
}

func (a *absent) Error() string { return a.what }

func notThere(arg, platform string) error {
	how := ""
	if platform != hostPlatform() {
		how = "--platform " + platform + " "
	}
	return &absent{fmt.Sprintf("no image %s for %s is in the store", arg, platform), "sb-image pull " + how + shellQuote(arg)}
}

// shellQuote writes a word as sh reads it back.
func shellQuote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/:.,_@=+-") == "" && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (s *store) findDigest(prefix string) (record, error) {
	if isDigest(prefix) { // the usual case, without a look at every image
		if r, err := s.image(prefix); !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
	}
	digests, err := s.images()
	if err != nil {
		return record{}, err
	}
	var found []record
	for _, d := range digests {
		r, err := s.image(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return record{}, err
		}
		if strings.HasPrefix(r.Digest, prefix) || strings.HasPrefix(r.Manifest, prefix) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return record{}, &absent{"no image with the digest " + prefix + " is in the store", "sb-image ls lists the images, sb-image pull REF fetches one"}
	case 1:
		return found[0], nil
	}
	return record{}, fmt.Errorf("%d images have a digest that begins with %s", len(found), prefix)
}

// size is what the file takes on the disk, in bytes.
func diskUse(path string) int64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}
