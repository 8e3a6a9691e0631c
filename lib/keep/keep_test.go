package keep

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sb/lib/manifest"
)

// tree makes directories (they end in /), files, and links (FROM -> TO, which is
// relative to the tree if it begins with @) in a directory of the test's.
func tree(t *testing.T, what ...string) func(string) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(top, path) }
	for _, w := range what {
		from, to, link := strings.Cut(w, " -> ")
		err := os.MkdirAll(filepath.Dir(at(from)), 0o700)
		switch {
		case err != nil:
		case link:
			if rest, ok := strings.CutPrefix(to, "@"); ok {
				to = at(rest)
			}
			err = os.Symlink(to, at(from))
		case strings.HasSuffix(w, "/"):
			err = os.MkdirAll(at(from), 0o700)
		default:
			err = os.WriteFile(at(from), nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// TestRefuse: no share lies in a directory of ours, and none that can be written
// decides where one is found, by whatever names.
func TestRefuse(t *testing.T) {
	at := tree(t, "home/state/sb/run/", "home/state-of-things/", "home/work/", "to-work -> home/work", "to-run -> home/state/sb/run",
		"links/config -> @far/config", "links/data -> ../far/data", "far/config/", "far/data/",
		"first/hop -> ../second/hop", "second/hop -> @third", "third/sb/",
		"loop/a -> b", "loop/b -> a")
	ours := []string{at("home/state/sb"), at("links/config/sb"), at("links/data/sb"), at("first/hop/sb"), at("not/there/yet"), at("loop/a/sb")}
	const lies, found = "it lies in", "the guest could replace"
	for _, c := range []struct{ host, writable, readOnly string }{
		{"home/work", "", ""},
		{"to-work", "", ""},
		{"home/state-of-things", "", ""},
		{"home/state/sb", lies, lies},
		{"home/state/sb/run", lies, lies},
		{"to-run", lies, lies},
		{"home/state", found, ""},
		{"home", found, ""},
		{"", found, ""},
		{"links", found, ""}, // ours is elsewhere, and the link to it is not
		{"far", found, ""},
		{"far/config", found, ""},
		{"first", found, ""},
		{"second", found, ""},
		{"third", found, ""},
		{"third/sb", lies, lies},
		{"loop", found, ""},
	} {
		for writable, want := range map[bool]string{true: c.writable, false: c.readOnly} {
			err := Refuse(at(c.host), writable, ours)
			if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q, writable %v: %v, want %q", c.host, writable, err, want)
			}
		}
	}
	if err := Refuse(at("nowhere"), true, ours); err != nil {
		t.Errorf("what is not there: %v", err) // whoever opens it says so
	}
}

// TestNotYetThere: a directory of ours that is yet to be made counts as if it
// were there.
func TestNotYetThere(t *testing.T) {
	at := tree(t, "a/", "b/", "link -> a")
	for _, ours := range []string{at("a/x/y"), at("link/x/y")} {
		if err := Refuse(at("a"), true, []string{ours}); err == nil {
			t.Errorf("%s would lie in the share", ours)
		}
		if err := Refuse(at("b"), true, []string{ours}); err != nil {
			t.Errorf("%s would lie elsewhere: %v", ours, err)
		}
	}
}

// TestProtect: what a writable share has of the paths is protected by its path
// from there, and each link on the way to one.
func TestProtect(t *testing.T) {
	at := tree(t, "ws/bin/sb-gate", "ws/odd[1]*?\\/sb-gate", "ws/link -> @far/bin", "ws/in -> bin", "far/bin/sb-gate", "to-ws -> ws")
	for _, c := range []struct {
		what, path, host string
		readOnly         bool
		want             []string
	}{
		{"a directory", "ws/bin", "ws", false, []string{"/bin"}},
		{"a share by another name", "ws/bin", "to-ws", false, []string{"/bin"}},
		{"a path by another name", "to-ws/bin", "ws", false, []string{"/bin"}},
		{"signs of patterns", "ws/odd[1]*?\\", "ws", false, []string{`/odd\[1]\*\?\\`}},
		{"a link that leads out", "ws/link/sb-gate", "ws", false, []string{"/link"}},
		{"a link within", "ws/in/sb-gate", "ws", false, []string{"/in", "/bin/sb-gate"}},
		{"what is yet to be made", "ws/a/console.log", "ws", false, []string{"/a/console.log"}},
		{"elsewhere", "far/bin", "ws", false, nil},
		{"read-only", "ws/bin", "ws", true, nil},
	} {
		shares := []manifest.Share{{Host: at(c.host), ReadOnly: c.readOnly}}
		for n := range 2 {
			added, err := Protect(shares, at(c.path))
			if err != nil || !slices.Equal(shares[0].Protected, c.want) {
				t.Errorf("%s: %q, %v; want %q", c.what, shares[0].Protected, err, c.want)
			}
			if n == 0 && len(added) != len(c.want) || n == 1 && len(added) != 0 {
				t.Errorf("%s: turn %d told %q", c.what, n, added)
			}
		}
		_, inside := Inside(shares, at(c.path))
		if inside != (c.want != nil) {
			t.Errorf("%s: inside a share: %v", c.what, inside)
		}
	}
	for _, host := range []string{"ws/bin", "to-ws/bin"} {
		if _, err := Protect([]manifest.Share{{Host: at(host)}}, at("ws/bin")); err == nil {
			t.Errorf("%s is the directory itself and was not refused", host)
		}
	}
	if _, err := Protect([]manifest.Share{{Host: at("ws/bin"), ReadOnly: true}}, at("ws/bin")); err != nil {
		t.Errorf("read-only: %v", err)
	}
}
