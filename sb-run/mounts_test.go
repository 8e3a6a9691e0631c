package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"sb/lib/manifest"
)

// TestShareable: a directory, by its real path, that is not the whole host, and
// neither the home directory nor around it.
func TestShareable(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(top, "home", "me")
	work := filepath.Join(home, "work")
	beside := filepath.Join(top, "home", "me2")
	for _, d := range []string{work, beside} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Chdir(work)
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(top, "home", "other", "state", "sb")
	t.Setenv("XDG_STATE_HOME", filepath.Dir(state))
	for name, to := range map[string]string{"link": work, "link-home": home, "link-up": filepath.Dir(home), "link-root": "/", "link-file": "file", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(beside, name)); err != nil {
			t.Fatal(err)
		}
	}
	other, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, want, fault string }{
		{".", work, ""},
		{work, work, ""},
		{work + "/../work/", work, ""},
		{"~/work", work, ""},
		{beside, beside, ""},
		{beside + "/link", work, ""},
		{"..", "", "that is your whole home directory"},
		{home, "", "that is your whole home directory"},
		{"~", "", "that is your whole home directory"},
		{"~/", "", "that is your whole home directory"},
		{beside + "/link-home", "", "that is your whole home directory"},
		{filepath.Dir(home), "", "your whole home directory lies in it"},
		{top, "", "your whole home directory lies in it"},
		{beside + "/link-up", "", "your whole home directory lies in it"},
		{"/", "", "that is the whole host"},
		{beside + "/link-root", "", "that is the whole host"},
		{"file", "", "not a directory"},
		{"/proc", "", "/proc is of this host's kernel"},
		{"/proc/self", "", "/proc is of this host's kernel"},
		{"/sys/kernel", "", "/sys is of this host's kernel"},
		{beside + "/link-file", "", "no such file"},
		{beside + "/dangling", "", "no such file"},
		{"nowhere", "", "no such file"},
		{"~me/work", "", "no such file"},
		{state, "", "it lies in " + state + ", a directory of sb's own"},
		{state + "/../sb", "", "a directory of sb's own"},
		{filepath.Dir(state), "", "the guest could replace " + state},
		{other.HomeDir, "", "whole home directory"}, // whatever HOME says
	} {
		got, err := shareable(c.dir, true)
		if got != c.want || (c.fault == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("shareable(%q) = %q, %v; want %q, %s", c.dir, got, err, c.want, c.fault)
		}
		if strings.Contains(c.fault, "whole") && !strings.Contains(withHint(err), "; go to the directory to work in, or name it with --workspace DIR") {
			t.Errorf("shareable(%q): no hint in %s", c.dir, withHint(err))
		}
	}
	if got, err := shareable(filepath.Dir(state), false); got != filepath.Dir(state) || err != nil {
		t.Errorf("read-only: %q, %v", got, err)
	}
	if got, err := shareable(state, false); err == nil {
		t.Errorf("our own, read-only: %q", got)
	}
}

// shareable is the real path of a directory that may be shared.
func shareable(dir string, writable bool) (string, error) {
	s := manifest.Share{Host: dir, ReadOnly: !writable}
	if err := setHost(&s, false); err != nil {
		return "", err
	}
	return s.Host, nil
}

// TestArrange: a share inside another is mounted after it; no place twice.
func TestArrange(t *testing.T) {
	shares := []manifest.Share{{Host: "/1", Guest: "/x/y/z"}, {Host: "/2", Guest: "/x-y"}, {Host: "/3", Guest: "/x/y"}, {Host: "/4", Guest: "/x"}}
	if err := arrange(shares); err != nil {
		t.Fatal(err)
	}
	var order string
	for _, s := range shares {
		order += s.Host
	}
	if order != "/4/2/3/1" {
		t.Errorf("order %s", order)
	}
	if err := arrange(nil); err != nil {
		t.Error(err)
	}
	twice := append(shares, manifest.Share{Host: "/5", Guest: "/x/y"})
	if err := arrange(twice); err == nil || !strings.Contains(err.Error(), "/3 and /5 are both to be mounted at /x/y") {
		t.Errorf("two at one place: %v", err)
	}
}
