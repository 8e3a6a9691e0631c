package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sb/lib/manifest"
)

// TestEntries: each file is kept where the share has it.
func TestEntries(t *testing.T) {
	for path, want := range map[string]string{
		".git/config": ".git/config", ".git/hooks/pre-commit": ".git/hooks", ".git/modules/a/hooks/x": ".git/modules/a/hooks",
		".git/modules/a/config": ".git/modules/a/config", ".git/modules/hooks/config": ".git/modules/hooks/config", ".git/modules/hooks/hooks/x": ".git/modules/hooks/hooks",
	} {
		if got := entryOf(path); got != manifest.ShadowName(want) {
			t.Errorf("%s is in %s, want %s", path, got, want)
		}
	}
}

func TestDifference(t *testing.T) {
	var b strings.Builder
	for _, l := range difference(lines("a\nb\nc\n"), lines("a\nx\nc\nd")) {
		b.WriteByte(l.sign)
		b.WriteString(l.text)
	}
	if got := b.String(); got != " a-b+x c+d" {
		t.Errorf("%q", got)
	}
	if got := difference(nil, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := difference(make([]string, 3000), make([]string, 3000)); len(got) != 6000 {
		t.Errorf("%d", len(got))
	}
}

// TestOffers: what a guest wrote is kept, the next one begins with it as long as the
// host's stays, and only files are read.
func TestOffers(t *testing.T) {
	t.Setenv("SB_HOME", filepath.Join(t.TempDir(), "sb"))
	host, shadow := t.TempDir(), filepath.Join(t.TempDir(), "shadow0")
	file := func(path, text string) {
		t.Helper()
		os.MkdirAll(filepath.Dir(path), 0o700)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file(host+"/.git/config", "old\n")
	file(host+"/.git/hooks/same", "same")
	file(shadow+"/"+manifest.ShadowName(".git/config"), "new\x1b[2J\n")
	file(shadow+"/"+manifest.ShadowName(".git/config.lock"), "half")
	file(shadow+"/"+manifest.ShadowName(".git/hooks")+"/same", "same")
	os.Symlink("/etc/passwd", shadow+"/"+manifest.ShadowName(".git/hooks")+"/link")
	unix.Mkfifo(shadow+"/"+manifest.ShadowName(".git/hooks")+"/fifo", 0o600)
	file(shadow+"/"+manifest.ShadowName("../../outside"), "x")
	s := manifest.Share{Host: host, Shadow: shadow, Shadowed: []string{"/.git/config"}}
	wrote, err := keepShadow(s)
	if err != nil || strings.Join(wrote, " ") != ".git/config" {
		t.Fatalf("%q, %v", wrote, err)
	}
	if wrote, err = keepShadow(s); err != nil || len(wrote) > 0 {
		t.Errorf("what was written before is told again: %q, %v", wrote, err)
	}
	dir, err := workspaceDir(host)
	if err != nil {
		t.Fatal(err)
	}
	files, err := pending(host, dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	var out bytes.Buffer
	files[0].print(&out)
	if got := out.String(); !strings.Contains(got, "-  old\n") || !strings.Contains(got, "+! new") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	again := func() string {
		d := &runDir{path: t.TempDir()}
		m := &manifest.Manifest{Shares: []manifest.Share{{Host: host, Shadowed: []string{"/.git/config"}}}}
		if err := d.makeShadows(m); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(filepath.Join(m.Shares[0].Shadow, manifest.ShadowName(".git/config")))
		return string(text)
	}
	if got := again(); !strings.HasPrefix(got, "new") {
		t.Errorf("the next one begins with %q", got)
	}
	file(host+"/.git/config", "mine\n")
	if got := again(); got != "" {
		t.Errorf("after a change here the next one begins with %q", got)
	}
	if err := files[0].take(host); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(host + "/.git/config"); !strings.HasPrefix(string(text), "new") {
		t.Errorf("taken: %q", text)
	}
	os.RemoveAll(host + "/.git")
	os.Symlink(t.TempDir(), host+"/.git")
	if err := files[0].take(host); err == nil {
		t.Error("it is written by way of a link that leads out")
	}
}

// TestAcceptFinds: from a directory of the repository what sandboxes of the whole wrote
// is found, and not from another repository in it; what is forgotten is said.
func TestAcceptFinds(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, dir := range []string{".git", "src/deep", "other/.git"} {
		if err := os.MkdirAll(filepath.Join(s.work, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	keep := filepath.Join(s.home, "state", "workspaces", workspaceName(s.work), "files")
	if err := os.MkdirAll(keep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(keep, manifest.ShadowName(".git/config")), []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(dir string, args ...string) result {
		cmd := s.cmd(append([]string{"accept"}, args...)...)
		cmd.Dir = filepath.Join(s.work, dir)
		return s.start(cmd).wait()
	}
	const shown = "--- .git/config"
	for _, dir := range []string{".", "src/deep"} {
		if r := in(dir, "--show"); r.code != 0 || !strings.Contains(r.stdout, shown) {
			t.Errorf("in %s: %+v", dir, r)
		}
	}
	in("other", "--show").want(t, 0, "no sandbox has written anything for itself in "+filepath.Join(s.work, "other"))
	in("src", "--show", "-w", ".").want(t, 0, "no sandbox has written anything for itself in "+filepath.Join(s.work, "src"))
	in("src", "--drop", "--yes").want(t, 125, "--show, --drop and --yes exclude each other")
	in("src", "--drop").want(t, 0, "forgotten: "+filepath.Join(s.work, ".git/config"))
	in(".", "--show").want(t, 0, "no sandbox has written anything for itself in "+s.work)
}
