package live

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCopyMount: of a copy the guest sees its own changes, and the host none.
func TestCopyMount(t *testing.T) {
	t.Parallel()
	claim(t, "82", "83")
	dir := workspace(t)
	os.Mkdir(filepath.Join(dir, "sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "sub", "f"), []byte("sub\n"), 0o644)
	os.Symlink("from-host", filepath.Join(dir, "link"))
	before := tree(t, dir)
	r := run(t, box{flags: []string{"-v", dir + ":/a,b=c:copy", "-v", dir + ":/rw"}, script: `
echo "== own"; cd /a,b=c; cat from-host sub/f; echo own >from-host; rm -r sub; mkdir sub new; echo x >new/x; mv from-host moved; cat moved new/x; ls sub link; chown 12:34 new/x; stat -c '%u:%g' new/x; mount -o remount,rw /a,b=c; umount /a,b=c 2>/dev/null; ls / | grep -c sb-disk
echo "== end"`})
	r.ok(t)
	r.says(t, "own", `^hello from the host\nsub\nown\nx\nlink\n\nsub:\n12:34\n0$`)
	if after := tree(t, dir); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	// Control: the same directory, shared for writing.
	r = run(t, box{flags: []string{"-v", dir + ":/rw"}, script: `rm /rw/sub/f; echo own >/rw/from-host; echo "== end"`})
	r.ok(t)
	if after := tree(t, dir); after == before {
		t.Error("control: nothing was written")
	}
}

// tree is what a directory holds, each file with its digest.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s", path, st.Mode())
		if st.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x %s", sha256.Sum256(text), st.ModTime())
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPrivate: a private directory is the guest's own; beside it the share is the
// host's.
func TestPrivate(t *testing.T) {
	t.Parallel()
	claim(t, "private")
	dir := workspace(t)
	os.MkdirAll(filepath.Join(dir, "pkg", "node_modules", "mac"), 0o755)
	os.MkdirAll(filepath.Join(dir, "linked"), 0o755)
	r := run(t, box{flags: []string{"-w", dir, "--private", "pkg/node_modules", "--private", "target", "--user", "1000:1000"}, script: `
echo "== own"; ls pkg/node_modules target; echo x >pkg/node_modules/x; mkdir target/debug; echo x >target/debug/x; cat pkg/node_modules/x; stat -c %u:%g pkg/node_modules
echo "== shared"; echo y >pkg/y; cat pkg/y
echo "== end"`})
	r.ok(t)
	r.says(t, "own", `^pkg/node_modules:\n\ntarget:\nx\n1000:1000$`)
	if left, _ := filepath.Glob(filepath.Join(dir, "target", "*")); len(left) > 0 {
		t.Errorf("on the host: %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "pkg", "node_modules", "mac")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pkg", "node_modules", "x")); err == nil {
		t.Error("what the guest wrote there is on the host")
	}
	if text, err := os.ReadFile(filepath.Join(dir, "pkg", "y")); err != nil || string(text) != "y\n" {
		t.Errorf("beside it: %q, %v", text, err)
	}
	t.Run("kept for the project", func(t *testing.T) {
		state := t.TempDir()
		os.Chmod(state, 0o700)
		b := box{flags: []string{"-w", dir, "--private", "target", "--disk", "20g"}, env: []string{"XDG_STATE_HOME=" + state}, script: `
echo "== found"; cat target/kept; echo "== end"; echo first >>target/kept; df -m target | awk 'END { print ($2 > 18000) }'`}
		run(t, b).ok(t)
		r := run(t, b)
		r.ok(t)
		r.says(t, "found", `^first$`)
		if !strings.HasSuffix(r.stdout, "\n1\n") {
			t.Errorf("its disk is small: %s", r.stdout)
		}
		env, _ := homes(t)
		startIn(t, box{flags: b.flags, script: "echo up; sleep 1000"}, append(env, b.env...), filepath.Join(state, "sb"))
		r = run(t, b)
		if r.ok(t); strings.Contains(r.stdout, "first") || !strings.Contains(r.stderr, "another sandbox has the private directories") {
			t.Errorf("beside another: %q, %s", r.stdout, r.stderr)
		}
	})
	os.Symlink("/etc", filepath.Join(dir, "link"))
	r = run(t, box{flags: []string{"-w", dir, "--private", "link"}, script: "echo inside"})
	if r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "must be a directory, and no link") {
		t.Errorf("a link: exit code %d, %q, %s", r.code, r.stdout, r.stderr)
	}
}

// TestOddPaths: a workspace by whatever name is shared, or refused before there is
// a machine.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	claim(t, "paths")
	top := t.TempDir()
	for _, name := range []string{"a:b:/c:ro", "line\nend", " blank ", "quote'\"$x`y\\", "-dash", "müll\u202e"} {
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r := run(t, box{flags: []string{"-w", dir, "-v", dir + ":/other:ro"}, script: `echo "== where"; pwd; echo x >f && cat /other/f; echo "== end"`})
		r.ok(t)
		if got := r.section("where"); got != strings.TrimSpace(dir+"\nx") {
			t.Errorf("%q: %q", name, got)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(text) != "x\n" {
			t.Errorf("%q: %q, %v", name, text, err)
		}
	}
	dir := filepath.Join(top, "latin\xff")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(top, "file")
	os.WriteFile(file, nil, 0o644)
	for flag, want := range map[string]string{"-w=" + dir: "is not UTF-8", "-v=" + dir + ":/x": "is not UTF-8", "-v=" + file + ":/x": "not a directory"} {
		if r := run(t, box{flags: []string{flag}, script: "echo inside"}); r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: exit code %d, %q, %s", flag, r.code, r.stdout, r.stderr)
		}
	}
}
