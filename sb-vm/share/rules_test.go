//go:build linux

package share

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

func TestStanding(t *testing.T) {
	rs, err := newRules([]string{".env*", "/top", "a/b/secret", "pkg/*/key"}, []string{".git/hooks", "CLAUDE.md", `w\[eird`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]standing{
		"plain": 0, "plain/x": 0, "env": 0, "x.env": 0,
		".env": hidden, ".env.local": hidden, "deep/down/.envrc": hidden, ".env/below": hidden, ".ENV": hidden,
		"top": hidden, "top/x": hidden, "deep/top": 0, "Top": hidden,
		"a": above, "a/b": above, "a/b/secret": hidden, "a/b/secret/x": hidden, "a/b/other": 0, "b/secret": 0, "x/a/b/secret": 0,
		"pkg": above, "pkg/one": above, "pkg/one/key": hidden, "pkg/one/two/key": 0,
		".git": above, ".git/hooks": protected, ".git/hooks/pre-commit": protected, ".git/config": 0, ".GIT": above, ".Git/Hooks": protected,
		"CLAUDE.md": protected, "sub/claude.md": protected, "w[eird": protected, ".git/hooks/.env": hidden | protected,
	} {
		p, says := rs.start(), standing(0)
		for name := range strings.SplitSeq(path, "/") {
			p, says = rs.step(p, name)
		}
		if says != want {
			t.Errorf("%s stands as %03b, want %03b", path, says, want)
		}
	}
	for _, bad := range []string{"", "/", "a//b", "a/../b", ".", "./a", "[", "a/[z", strings.Repeat("a/", 70)} {
		if _, err := newRules([]string{bad}, nil, nil); err == nil {
			t.Errorf("the pattern %q is taken", bad)
		}
	}
	if _, says := rs.step(nil, "x"); says&hidden == 0 || says&protected == 0 {
		t.Errorf("in a directory that lies nowhere a name stands as %03b", says)
	}
	if _, says := (&rules{}).step((&rules{}).start(), "x"); says != 0 {
		t.Error("without rules something is said")
	}
}

// tree is a share with something at every pattern.
func tree(t *testing.T, spec exportSpec) *raw {
	t.Helper()
	spec.Dir = t.TempDir()
	for _, f := range []string{".git/hooks/pre-commit", ".git/config", "conf/app/secret", "conf/app/open", ".env", "sub/.env.local", "plain", "sub/plain", "CLAUDE.md"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(spec.Dir, f)), 0o755))
		write1(t, filepath.Join(spec.Dir, f), f)
	}
	must(t, os.Symlink("plain", filepath.Join(spec.Dir, "sub/link")))
	return newRaw(t, spec).start()
}

// changes are all ways to change what is called name in dir, its own changes
// last, for it must be there.
func (r *raw) changes(dir uint64, name string) map[string]error {
	plain, sub := r.node(1, "plain"), r.node(1, "sub")
	m := map[string]error{
		"create":          third(r.create(dir, name)),
		"mkdir":           r.mkdir(dir, name),
		"mknod":           second(r.ask(fusewire.Mknod, dir, body{}.u32(unix.S_IFREG|0o644, 0, 0, 0).name(name))),
		"symlink":         r.symlink(dir, name, "x"),
		"link to it":      r.link(plain, dir, name),
		"rename to it":    r.rename(sub, "plain", dir, name, 0),
		"move there":      r.rename(sub, "link", dir, name, unix.RENAME_NOREPLACE),
		"rename it":       r.rename(dir, name, sub, "free", 0),
		"exchange it":     r.rename(dir, name, sub, "plain", unix.RENAME_EXCHANGE),
		"exchange for it": r.rename(sub, "plain", dir, name, unix.RENAME_EXCHANGE),
		"unlink":          r.unlink(dir, name),
		"rmdir":           r.rmdir(dir, name),
	}
	n, err := r.lookup(dir, name)
	if err != nil || n == 0 {
		return m
	}
	m["link from it"] = r.link(n, sub, "linked")
	m["write to it"] = second(r.open(n, unix.O_WRONLY))
	m["append to it"] = second(r.open(n, unix.O_RDWR|unix.O_APPEND))
	m["truncate it in open"] = second(r.open(n, unix.O_RDONLY|unix.O_TRUNC))
	m["truncate it"] = r.setattr(n, fusewire.AttrSize, 1, 0)
	m["chmod"] = r.setattr(n, fusewire.AttrMode, 0, 0o777)
	m["touch"] = r.setattr(n, fusewire.AttrMtimeNow, 0, 0)
	m["setxattr"] = second(r.ask(fusewire.Setxattr, n, append(body{}.u32(1, 0).name("user.x"), 'x')))
	m["removexattr"] = second(r.ask(fusewire.Removexattr, n, body{}.name("user.x")))
	m["make in it"] = r.mkdir(n, "new")
	m["tmpfile in it"] = second(r.ask(fusewire.Tmpfile, n, body{}.u32(unix.O_RDWR, 0o600, 0, 0).name("/")))
	return m
}

func TestReadOnly(t *testing.T) {
	r := tree(t, exportSpec{ReadOnly: true})
	before := snapshot(t, r.dir)
	for what, err := range r.changes(1, "plain") {
		wantErr(t, what, err, unix.EROFS)
	}
	for what, err := range r.changes(1, "absent") {
		wantErr(t, what+" (absent)", err, unix.EROFS)
	}
	n := r.node(1, "plain")
	fh, err := r.open(n, unix.O_RDONLY)
	must(t, err)
	wantErr(t, "write", r.write(n, fh, "x"), unix.EROFS)
	wantErr(t, "allocate", second(r.ask(fusewire.Fallocate, n, body{}.u64(fh, 0, 1).u32(0, 0))), unix.EROFS)
	wantErr(t, "copy", second(r.ask(fusewire.CopyFileRange, n, body{}.u64(fh, 0, n, fh, 0, 1, 0))), unix.EROFS)
	if got, err := r.read(n, fh); err != nil || got != "plain" {
		t.Errorf("reading: %q, %v", got, err)
	}
	if now := snapshot(t, r.dir); now != before {
		t.Errorf("it was\n%s\nand is\n%s", before, now)
	}
	// Control: the same changes are made where the share can be written to.
	works(t, tree(t, exportSpec{}))
}

// works is the control of all refusals: without the rule each request succeeds.
func works(t *testing.T, r *raw) {
	t.Helper()
	sub, plain := r.node(1, "sub"), r.node(1, "plain")
	for what, err := range map[string]error{
		"create":   third(r.create(sub, "c1")),
		"mkdir":    r.mkdir(sub, "c2"),
		"mknod":    second(r.ask(fusewire.Mknod, sub, body{}.u32(unix.S_IFREG|0o644, 0, 0, 0).name("c3"))),
		"symlink":  r.symlink(sub, "c4", "x"),
		"link":     r.link(plain, sub, "c5"),
		"open":     second(r.open(plain, unix.O_RDWR|unix.O_TRUNC)),
		"truncate": r.setattr(plain, fusewire.AttrSize, 1, 0),
		"chmod":    r.setattr(plain, fusewire.AttrMode, 0, 0o777),
		"touch":    r.setattr(plain, fusewire.AttrMtimeNow, 0, 0),
		"setxattr": second(r.ask(fusewire.Setxattr, plain, append(body{}.u32(1, 0).name("user.x"), 'x'))),
		"tmpfile":  second(r.ask(fusewire.Tmpfile, sub, body{}.u32(unix.O_RDWR, 0o600, 0, 0).name("/"))),
	} {
		if err != nil {
			t.Errorf("control: %s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"removexattr": second(r.ask(fusewire.Removexattr, plain, body{}.name("user.x"))),
		"rename":      r.rename(sub, "c1", sub, "c6", 0),
		"exchange":    r.rename(sub, "c2", sub, "c6", unix.RENAME_EXCHANGE),
		"unlink":      r.unlink(sub, "c5"),
		"rmdir":       r.rmdir(sub, "c6"),
	} {
		if err != nil {
			t.Errorf("control: %s: %v", what, err)
		}
	}
}

func TestHidden(t *testing.T) {
	r := tree(t, exportSpec{Hidden: []string{".env*", "conf/app/secret", "absent/one"}})
	before := snapshot(t, r.dir)
	conf := r.node(1, "conf")
	app, sub := r.node(conf, "app"), r.node(1, "sub")
	for _, at := range []struct {
		dir  uint64
		name string
	}{{1, ".env"}, {1, ".ENV"}, {1, ".environment"}, {sub, ".env.local"}, {app, "secret"}, {app, ".env"}} {
		if n, err := r.lookup(at.dir, at.name); err != nil || n != 0 {
			t.Errorf("%s is there: %d, %v", at.name, n, err)
		}
		for what, err := range r.changes(at.dir, at.name) {
			switch what {
			case "rename it", "exchange it", "unlink", "rmdir":
				wantErr(t, what+" "+at.name, err, unix.ENOENT)
			default:
				wantErr(t, what+" "+at.name, err, unix.EPERM)
			}
		}
	}
	for _, plus := range []bool{false, true} {
		for dir, want := range map[uint64]string{1: ".git CLAUDE.md conf plain sub", sub: "link plain", app: "open"} {
			list, err := r.list(dir, plus)
			slices.Sort(list)
			if got := strings.Join(list, " "); err != nil || got != want {
				t.Errorf("the listing is %q, %v, want %q", got, err, want)
			}
		}
	}
	if list, err := tree(t, exportSpec{Hidden: []string{".env*"}}).list(1, false); err != nil || slices.Contains(list, ".env") {
		t.Errorf("with a glob alone the listing is %v, %v", list, err)
	}
	// The directories above a path stay where they are.
	for what, err := range map[string]error{
		"rename its directory":  r.rename(conf, "app", 1, "moved", 0),
		"rename the one above":  r.rename(1, "conf", 1, "moved", 0),
		"rename onto it":        r.rename(1, "sub", conf, "app", 0),
		"exchange it":           r.rename(1, "sub", 1, "conf", unix.RENAME_EXCHANGE),
		"put a link":            r.symlink(1, "absent", "sub"),
		"put a file":            third(r.create(1, "absent")),
		"move a directory here": r.rename(1, "sub", 1, "absent", 0),
	} {
		wantErr(t, what, err, unix.EPERM)
	}
	if now := snapshot(t, r.dir); now != before {
		t.Errorf("it was\n%s\nand is\n%s", before, now)
	}
	must(t, r.mkdir(1, "absent"))
	absent := r.node(1, "absent")
	wantErr(t, "make it in the directory", third(r.create(absent, "one")), unix.EPERM)
	must(t, third(r.create(absent, "two")))
	must(t, r.unlink(absent, "two"))
	must(t, r.rmdir(1, "absent"))
	works(t, r)
}

func TestProtected(t *testing.T) {
	r := tree(t, exportSpec{Protected: []string{".git/hooks", "CLAUDE.md", ".mcp.json", "conf/app/open"}})
	before := snapshot(t, r.dir)
	git := r.node(1, ".git")
	hooks := r.node(git, "hooks")
	app := r.node(1, "conf", "app")
	for _, at := range []struct {
		dir  uint64
		name string
	}{{git, "hooks"}, {hooks, "pre-commit"}, {hooks, "new"}, {1, "CLAUDE.md"}, {1, "claude.MD"}, {1, ".mcp.json"}, {app, "open"}, {app, ".mcp.json"}} {
		for what, err := range r.changes(at.dir, at.name) {
			// What is not there, or is a file or a directory, may be answered so.
			other := []error{unix.EPERM, unix.ENOENT, unix.ENOTDIR, unix.EISDIR}
			if !slices.ContainsFunc(other, func(e error) bool { return errors.Is(err, e) }) {
				t.Errorf("%s %s: %v", what, at.name, err)
			}
			if at.name == "CLAUDE.md" && what != "make in it" && what != "tmpfile in it" {
				wantErr(t, what, err, unix.EPERM)
			}
		}
	}
	if got, err := r.readFile(".git", "hooks", "pre-commit"); err != nil || got != ".git/hooks/pre-commit" {
		t.Errorf("reading: %q, %v", got, err)
	}
	for what, err := range map[string]error{
		"rename above":       r.rename(1, ".git", 1, "git", 0),
		"exchange above":     r.rename(1, ".git", 1, "sub", unix.RENAME_EXCHANGE),
		"rename above twice": r.rename(1, "conf", 1, "x", 0),
	} {
		wantErr(t, what, err, unix.EPERM)
	}
	if now := snapshot(t, r.dir); now != before {
		t.Errorf("it was\n%s\nand is\n%s", before, now)
	}
	must(t, third(r.create(git, "config2")))
	must(t, third(r.create(app, "other")))
	works(t, r)
}

// A link at a place that a pattern leads through cannot be taken away, so that
// the guest cannot put a directory there.
func TestLinkAbovePattern(t *testing.T) {
	r := tree(t, exportSpec{Protected: []string{"sub/link/x"}})
	sub := r.node(1, "sub")
	wantErr(t, "unlink", r.unlink(sub, "link"), unix.EPERM)
	wantErr(t, "rename", r.rename(sub, "link", 1, "x", 0), unix.EPERM)
	must(t, r.unlink(sub, "plain"))
}

// Another hard link to a file that is protected or hidden by its path.
func TestHardLinksToRuledFiles(t *testing.T) {
	spec := exportSpec{Hidden: []string{"conf/app/secret"}, Protected: []string{".git/config"}}
	r := tree(t, spec)
	must(t, os.Link(r.dir+"/.git/config", r.dir+"/other"))
	must(t, os.Link(r.dir+"/conf/app/secret", r.dir+"/alias"))
	must(t, os.Link(r.dir+"/plain", r.dir+"/free"))
	if n, err := r.lookup(1, "alias"); err != nil || n != 0 {
		t.Errorf("the hidden file shows by another name: %d, %v", n, err)
	}
	if list, _ := r.list(1, false); slices.Contains(list, "alias") || !slices.Contains(list, "free") {
		t.Errorf("the listing is %v", list)
	}
	n := r.node(1, "other")
	wantErr(t, "write", second(r.open(n, unix.O_WRONLY)), unix.EPERM)
	wantErr(t, "chmod", r.setattr(n, fusewire.AttrMode, 0, 0o777), unix.EPERM)
	wantErr(t, "link", r.link(n, 1, "third"), unix.EPERM)
	must(t, second(r.open(n, unix.O_RDONLY)))
	must(t, second(r.open(r.node(1, "free"), unix.O_WRONLY)))
}

func TestHiddenInodes(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "home/state/sb"), 0o755))
	write1(t, filepath.Join(dir, "home/state/sb/key"), "key")
	write1(t, filepath.Join(dir, "home/state/plain"), "plain")
	must(t, os.Mkdir(filepath.Join(dir, "home/alias"), 0o755))
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(dir, "home/state/sb"), &st))
	ours := []Inode{{st.Dev, st.Ino}}
	if os.Geteuid() == 0 {
		alias := filepath.Join(dir, "home/alias")
		must(t, unix.Mount(filepath.Join(dir, "home/state/sb"), alias, "", unix.MS_BIND, ""))
		defer unix.Unmount(alias, unix.MNT_DETACH)
	}
	r := newRaw(t, exportSpec{Dir: filepath.Join(dir, "home"), HiddenInodes: ours}).start()
	state := r.node(1, "state")
	for _, at := range []struct {
		dir  uint64
		name string
	}{{state, "sb"}, {1, "alias"}} {
		if at.dir == 1 && os.Geteuid() != 0 {
			continue
		}
		if n, err := r.lookup(at.dir, at.name); err != nil || n != 0 {
			t.Errorf("%s is there: %d, %v", at.name, n, err)
		}
		wantErr(t, "rename", r.rename(at.dir, at.name, 1, "x", 0), unix.ENOENT)
		wantErr(t, "rename over it", r.rename(state, "plain", at.dir, at.name, 0), unix.EPERM)
		wantErr(t, "exchange", r.rename(state, "plain", at.dir, at.name, unix.RENAME_EXCHANGE), unix.EPERM)
		wantErr(t, "rmdir", r.rmdir(at.dir, at.name), unix.ENOENT)
		for _, plus := range []bool{false, true} {
			if list, err := r.list(at.dir, plus); err != nil || slices.Contains(list, at.name) {
				t.Errorf("it is listed: %v, %v", list, err)
			}
		}
	}
	if n, err := r.lookup(state, "plain"); err != nil || n == 0 {
		t.Errorf("control: %d, %v", n, err)
	}
	e, err := exportSpec{Dir: filepath.Join(dir, "home/state/sb"), HiddenInodes: ours}.open()
	must(t, err)
	if _, err := newExport(e); err == nil {
		t.Error("one of our own directories can be shared")
	}
	e.HiddenInodes = nil
	x, err := newExport(e)
	must(t, err)
	x.close()
}

// The guest's root does not get more of a protected file than its mode gives: to
// widen that for a moment is a change, too.
func TestProtectedMode(t *testing.T) {
	m := mount(t, exportSpec{UID: ordinary, Protected: []string{"locked"}})
	for _, name := range []string{"locked", "free"} {
		write1(t, m.on(name), name)
		must(t, os.Chown(m.on(name), ordinary, ordinary))
		must(t, os.Chmod(m.on(name), 0o200))
	}
	var before, after unix.Stat_t
	must(t, unix.Stat(m.on("locked"), &before))
	_, err := os.ReadFile(m.in("locked"))
	wantErr(t, "reading", err, unix.EACCES)
	must(t, unix.Stat(m.on("locked"), &after))
	if before.Ctim != after.Ctim {
		t.Error("its mode was changed")
	}
	if got := read1(t, m.in("free")); got != "free" {
		t.Errorf("control: %q", got)
	}
}

// The same rules through a kernel: what programs say.
func TestRulesMounted(t *testing.T) {
	servers(t, exportSpec{Hidden: []string{".env*"}, Protected: []string{".git/hooks"}}, func(t *testing.T, m *mounted) {
		sh(t, m.guest, "mkdir -p a .git; echo 1 >a/f")
		write1(t, m.on(".env"), "secret")
		write1(t, m.on("a/.envrc"), "secret")
		for _, c := range []struct{ script, want string }{
			{"ls -A . a", ".:\n.git\na\n\na:\nf\n"},
			{"cat .env 2>&1 || true", "cat: .env: No such file or directory\n"},
			{"mkdir .git/hooks 2>&1 || true", "mkdir: cannot create directory ‘.git/hooks’: Operation not permitted\n"},
			{"mv .git git 2>&1 || true", "mv: cannot move '.git' to 'git': Operation not permitted\n"},
			{"touch .envnew 2>&1 || true", "touch: cannot touch '.envnew': Operation not permitted\n"},
			{"echo 2 >>a/f; mv a/f a/g; cat a/g; rm a/g", "1\n2\n"},
		} {
			if got := sh(t, m.guest, c.script, "LC_ALL=C.UTF-8"); got != c.want {
				t.Errorf("%s: %q, want %q", c.script, got, c.want)
			}
		}
	})
	ro := mount(t, exportSpec{ReadOnly: true})
	write1(t, ro.on("f"), "text")
	if out := sh(t, ro.guest, "cat f; for c in 'touch g' 'rm f' 'touch f' 'mkdir d' 'ln f h' 'chmod 600 f'; do $c 2>&1 || true; done"); strings.Count(out, "Read-only file system") != 6 || !strings.HasPrefix(out, "text") {
		t.Errorf("%s", out)
	}
}
