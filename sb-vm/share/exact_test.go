//go:build linux

package share

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// ruledTree is a share whose files below ruled directories have further names, in
// linked, that the host made. linked/free and free are the control.
func ruledTree(t *testing.T, spec exportSpec) *raw {
	t.Helper()
	spec.Dir = t.TempDir()
	for name, file := range map[string]string{
		"hook": ".git/hooks/pre-commit", "deep": ".git/hooks/a/b/c", "module": ".git/modules/m/config",
		"modulehook": ".git/modules/m/hooks/x", "secret": "keys/old/key", "globbed": "pkg/one/key", "free": "free",
	} {
		link1(t, filepath.Join(spec.Dir, file), filepath.Join(spec.Dir, "linked", name))
	}
	return newRaw(t, spec).start()
}

// link1 makes a file, and another name of it.
func link1(t testing.TB, file, name string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(file, []byte("text"), 0o644))
	must(t, os.Link(file, name))
}

var ruledSpec = exportSpec{
	Protected: []string{"/.git/hooks", "/.git/modules/*/config", "/.git/modules/*/hooks"},
	Hidden:    []string{"/keys", "/pkg/*/key"},
}

// refused checks that the file cannot be changed by the name linked/name, and can
// be read.
func refused(t *testing.T, r *raw, name string) {
	t.Helper()
	n := r.node(1, "linked", name)
	wantErr(t, "write "+name, second(r.open(n, unix.O_WRONLY)), unix.EPERM)
	wantErr(t, "chmod "+name, r.setattr(n, fusewire.AttrMode, 0, 0o777), unix.EPERM)
	wantErr(t, "link "+name, r.link(n, 1, "third"), unix.EPERM)
	must(t, second(r.open(n, unix.O_RDONLY)))
}

// changed is the control of refused.
func changed(t *testing.T, r *raw, name string) {
	t.Helper()
	n := r.node(1, "linked", name)
	must(t, second(r.open(n, unix.O_WRONLY)))
	must(t, r.setattr(n, fusewire.AttrMode, 0, 0o644))
	must(t, r.link(n, 1, "third"))
	must(t, r.unlink(1, "third"))
}

// Another hard link to a file below a path that is protected or hidden, or at one
// of a glob.
func TestHardLinksBelowRuledPaths(t *testing.T) {
	r := ruledTree(t, ruledSpec)
	for _, name := range []string{"hook", "deep", "module", "modulehook"} {
		refused(t, r, name)
	}
	linked := r.node(1, "linked")
	for _, name := range []string{"secret", "globbed"} {
		if n, err := r.lookup(linked, name); err != nil || n != 0 {
			t.Errorf("the hidden file shows as %s: %d, %v", name, n, err)
		}
	}
	if list, _ := r.list(linked, false); slices.Contains(list, "secret") || !slices.Contains(list, "free") {
		t.Errorf("the listing is %v", list)
	}
	changed(t, r, "free")
	// One that the host links later is judged alike soon.
	must(t, os.Link(r.dir+"/linked/free", r.dir+"/.git/hooks/post-commit"))
	soon(t, "the new hook is refused", func() bool {
		return second(r.open(r.node(linked, "free"), unix.O_WRONLY)) != nil
	})
	must(t, os.Remove(r.dir+"/.git/hooks/post-commit"))
	soon(t, "what is no hook any more is not", func() bool {
		return second(r.open(r.node(linked, "free"), unix.O_WRONLY)) == nil
	})
}

// A symbolic link at a glob or below a ruled path is not followed.
func TestHardLinksNotFollowed(t *testing.T) {
	r := ruledTree(t, ruledSpec)
	must(t, os.Symlink("../../linked", r.dir+"/.git/hooks/away"))
	must(t, os.Symlink("../../linked", r.dir+"/.git/modules/away"))
	must(t, os.Symlink("/", r.dir+"/.git/modules/root"))
	changed(t, r, "free")
	refused(t, r, "hook")
}

// Where there is more than can be looked through, every file of several names is
// protected; what has one name is not.
func TestHardLinksTooMany(t *testing.T) {
	deep := filepath.Join(".git/hooks", filepath.Join(slices.Repeat([]string{"d"}, deepest+1)...))
	for what, spec := range map[string]exportSpec{
		"many": {Protected: ruledSpec.Protected, Ruled: 1},
		"deep": {Protected: ruledSpec.Protected},
	} {
		t.Run(what, func(t *testing.T) {
			r := ruledTree(t, spec)
			must(t, os.WriteFile(r.dir+"/alone", nil, 0o644))
			if what == "deep" {
				changed(t, r, "free")
				must(t, os.MkdirAll(filepath.Join(r.dir, deep), 0o755))
				soon(t, "the depth is seen", func() bool {
					return second(r.open(r.node(1, "linked", "free"), unix.O_WRONLY)) != nil
				})
			}
			refused(t, r, "hook")
			refused(t, r, "free")
			must(t, second(r.open(r.node(1, "alone"), unix.O_WRONLY)))
		})
	}
}

// A directory of another user's that cannot be entered is passed by: nobody's
// program finds a file in it. One that can be entered and not read is not.
func TestHardLinksUnreadable(t *testing.T) {
	for mode, refused := range map[os.FileMode]bool{0o700: false, 0o711: true, 0o755: false} {
		m := mount(t, exportSpec{UID: ordinary, Protected: []string{"/hooks"}})
		link1(t, m.on("free"), m.on("linked"))
		must(t, os.Chown(m.on("free"), ordinary, ordinary))
		must(t, os.MkdirAll(m.on("hooks/other"), 0o755))
		must(t, os.Chmod(m.on("hooks/other"), mode))
		err := os.WriteFile(m.in("linked"), nil, 0)
		if got := err != nil; got != refused {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// The guest cannot make another name of what a rule means, by a path or a name
// at any depth; of another file it can.
func TestHardLinksByGuest(t *testing.T) {
	r := tree(t, exportSpec{Protected: []string{".git/hooks", "CLAUDE.md", "conf/*/open", ".env*"}})
	sub := r.node(1, "sub")
	for _, path := range [][]string{{".git", "hooks", "pre-commit"}, {"CLAUDE.md"}, {"conf", "app", "open"}, {".env"}, {"sub", ".env.local"}} {
		wantErr(t, filepath.Join(path...), r.link(r.node(1, path...), sub, "linked"), unix.EPERM)
	}
	must(t, r.link(r.node(1, "plain"), sub, "linked"))
}
