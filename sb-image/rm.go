package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

func runRm(args []string) error {
	flags := say.Flags("sb-image rm", "[--platform OS/ARCH] REF|DIGEST…", `
Removes references, and the images that none stands for any more; given a
digest, the image and all its references. Prints the digests of the images that
are gone. An image that a sandbox uses stays until gc.`)
	platform := platformFlag(flags)
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return say.Usage("rm needs a reference or a digest")
	}
	if err := checkPlatform(*platform); err != nil {
		return err
	}
	s, err := openStore()
	if err != nil {
		return err
	}
	return untilSignal(func(ctx context.Context) error {
		var failed error
		for _, arg := range flags.Args() {
			if err := s.rm(ctx, arg, *platform); err != nil {
				failed = errors.Join(failed, fmt.Errorf("remove %s: %w", arg, err))
			}
		}
		return failed
	})
}

func (s *store) rm(ctx context.Context, arg, platform string) error {
	rec, name, err := s.find(arg, platform)
	var gone *absent
	if errors.As(err, &gone) {
		return say.WithHint(err, "%s", whatElse(arg))
	}
	if err != nil {
		return err
	}
	lock, err := s.lock(ctx, rec.Digest)
	if err != nil {
		return err
	}
	defer lock.Close()
	refs, err := s.refs()
	if err != nil {
		return err
	}
	left := 0
	for _, r := range refs {
		if r.Digest != rec.Digest {
			continue
		}
		if name != "" && (r.Ref != name || r.Platform != platform) {
			left++
			continue
		}
		if err := os.Remove(s.refFile(r.Ref, r.Platform)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if left > 0 {
		return nil
	}
	_, err = s.removeImage(rec.Digest)
	if errors.Is(err, errInUse) {
		say.Warn("%s is in use; sb-image gc removes it when it is not", rec.Digest)
		return nil
	}
	if err == nil {
		fmt.Println(rec.Digest)
	}
	return err
}

// whatElse is the hint about a word that ls may show, but that is no image.
func whatElse(arg string) string {
	saved, _ := savedMachines()
	for _, m := range saved {
		if len(arg) >= 12 && strings.HasPrefix(m.Template, arg) {
			return "that is a saved machine: sb-image gc removes it when its image, " + m.Image[:min(19, len(m.Image))] + ", is gone"
		}
	}
	return "sb-image ls lists the images"
}

var errInUse = errors.New("it is in use")

// removeImage removes an image that nobody uses and returns the bytes that
// makes free. The caller holds the lock on its digest.
func (s *store) removeImage(digest string) (int64, error) {
	file := s.imageFile(digest, "erofs")
	f, err := os.Open(file)
	if err == nil {
		defer f.Close()
		if held, err := tryLock(f); err != nil || !held {
			return 0, cmpErr(err, errInUse)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	// A pull may have given it a name since the caller looked, and let go of its lock.
	refs, err := s.refs()
	if err != nil {
		return 0, err
	}
	for _, r := range refs {
		if r.Digest == digest {
			return 0, errInUse
		}
	}
	// In the other order there would be, for a moment, a record of nothing.
	freed, err := remove(s.imageFile(digest, "json"))
	if err != nil {
		return 0, err
	}
	more, err := remove(file)
	return freed + more, err
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// remove removes a file, if it is there, and returns the bytes that makes free.
func remove(file string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return 0, nil
	}
	if err := os.Remove(file); err != nil {
		return 0, err
	}
	if st.Nlink > 1 {
		return 0, nil
	}
	return st.Blocks * 512, nil
}
