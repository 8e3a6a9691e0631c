package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func (s *stage) asked() (all []string) {
	for _, st := range s.starts("sb-image") {
		all = append(all, strings.Join(st.Args, " "))
	}
	os.Remove(filepath.Join(s.dir, "sb-image.starts"))
	return all
}

// TestFetch: what is missing is fetched, and what is there is not.
func TestFetch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run("img", "--print").want(t, 0, "!fetching", "!kernel")
	// The image and the kernel are asked for at the same time.
	if got, want := slices.Sorted(slices.Values(s.asked())), []string{"kernel show", "show img"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	os.Remove(filepath.Join(s.dir, "image"))
	os.Remove(filepath.Join(s.dir, "kernel"))
	got := s.run("img", "--print")
	got.want(t, 0, "sb-image: fetching img\n", "sb-run: no kernel yet: sb-image kernel install\n", "!error")
	if got, want := slices.Sorted(slices.Values(s.asked())), []string{"kernel install", "kernel show", "pull img", "show img", "show img"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
	m := s.parse(got.stdout)
	if m.Machine.Base != filepath.Join(s.dir, "image") || m.Machine.Kernel != filepath.Join(s.dir, "kernel") {
		t.Errorf("machine %+v", m.Machine)
	}
}

// TestImageFails: what sb-image says is said once, with its hint.
func TestImageFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		does, target string
		remove       []string
		want         []string
	}{
		{"pull-fails", "img", []string{"image"}, []string{
			"sb-image: error: pull: it is broken\nsb-image: hint: mend it\n",
			"sb-run: error: img is no profile (there is: claude, codex, copilot, gemini, opencode, pi, shell); tried as an image: sb-image pull img failed (its message is above)\nsb-run: hint: sb-run shell runs a shell in this directory\n"}},
		{"pull-fails", "registry.example:5000/a/b:c", []string{"image"}, []string{
			"sb-image: error: pull: it is broken\nsb-image: hint: mend it\n",
			"sb-run: error: registry.example:5000/a/b:c: sb-image pull registry.example:5000/a/b:c failed (its message is above)\n", "!profile"}},
		{"pull-fails", "shell", []string{"image"}, []string{"sb-run: error: shell: sb-image pull ", "!no profile"}},
		{"kernel-install-fails", "img", []string{"kernel"}, []string{
			"sb-image: error: kernel-install: it is broken\nsb-image: hint: mend it\n", "sb-run: error: sb-image kernel install failed (its message is above)\n"}},
		{"disk-fails", "img", nil, []string{"sb-run: error: disk of 16g: disk: it is broken\nsb-run: hint: mend it\n"}},
	} {
		t.Run(c.does+" "+c.target, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.does("sb-image", c.does)
			for _, f := range c.remove {
				os.Remove(filepath.Join(s.dir, f))
			}
			s.run(c.target, "--allow", "a.example", "--", "true").want(t, 125, c.want...)
			if n := len(s.starts("sb-gate")); n != 0 {
				t.Errorf("%d gates were started", n)
			}
			s.does("sb-image", "")
			s.run(c.target, "--allow", "a.example", "--", "true").want(t, 0, "!error")
		})
	}
}

// TestImageNonsense: an answer that is not understood is an error.
func TestImageNonsense(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.put("image.json", "no JSON")
	s.run("img", "--", "true").want(t, 125, "read what sb-image says of img: ")
}
