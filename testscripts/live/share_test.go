package live

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWorkspace: the working directory is there at its own path; what the guest
// writes is the user's.
func TestWorkspace(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	os.WriteFile(outside, []byte("secret"), 0o644)
	os.Symlink(outside, filepath.Join(dir, "link-out"))
	r := run(t, box{flags: []string{"-w", dir}, script: `
echo "== where"; pwd
echo "== read"; cat from-host; stat -c '%u %g %a' from-host
echo new >from-guest; mkdir -p d/e; echo x >d/e/f; chmod 751 d/e/f; ln -s from-host link; ln from-guest hard; mv d/e d/g
chown 1234:1234 from-guest && echo chown-ok
echo "== outside"; cat ../outside 2>&1; cat link-out 2>&1; ls ..
echo "== remount"; mount -o remount,rw / 2>&1; umount "$PWD" 2>&1 | head -1; cd /; mount | grep fuse.sb | wc -l
ln -s /etc/passwd "` + dir + `/planted"
echo "== end"`})
	r.ok(t)
	t.Run("read at the same path", func(t *testing.T) {
		claim(t, "60", "12")
		r.says(t, "where", `^`+dir+`$`)
		r.says(t, "read", `^hello from the host\n0 0 640\n`)
	})
	t.Run("written, and the user's", func(t *testing.T) {
		claim(t, "61")
		text, err := os.ReadFile(filepath.Join(dir, "from-guest"))
		if err != nil || string(text) != "new\n" {
			t.Errorf("%q, %v", text, err)
		}
		for _, f := range []string{"from-guest", "d/g/f"} {
			st, err := os.Lstat(filepath.Join(dir, f))
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			if uid := st.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Getuid() {
				t.Errorf("%s belongs to %d", f, uid)
			}
		}
		if st, err := os.Stat(filepath.Join(dir, "d/g/f")); err != nil || st.Mode().Perm() != 0o751 {
			t.Errorf("mode %v, %v", st, err)
		}
		if link, _ := os.Readlink(filepath.Join(dir, "link")); link != "from-host" {
			t.Errorf("link leads to %q", link)
		}
	})
	t.Run("nothing outside is there", func(t *testing.T) {
		claim(t, "13", "14")
		if strings.Contains(r.section("outside"), "secret") {
			t.Errorf("the guest read a file outside the share: %s", r.section("outside"))
		}
		r.says(t, "outside", `No such file`)
		r.says(t, "read", `^hello`)
	})
	t.Run("a planted link is a link", func(t *testing.T) {
		claim(t, "15")
		if link, err := os.Readlink(filepath.Join(dir, "planted")); err != nil || link != "/etc/passwd" {
			t.Errorf("planted: %q, %v", link, err)
		}
	})
}

// workspace is a directory with something in it.
func workspace(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "project dir,with=signs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "from-host"), []byte("hello from the host\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReadOnlyMount: read-only is the host's decision; root inside cannot lift it.
func TestReadOnlyMount(t *testing.T) {
	t.Parallel()
	claim(t, "61-ro")
	dir := workspace(t)
	writable := workspace(t)
	r := run(t, box{flags: []string{"-v", dir + ":/ro:ro", "-v", writable + ":/rw"}, script: `
echo "== read"; cat /ro/from-host
echo "== write"; echo x >/ro/new 2>&1; rm /ro/from-host 2>&1; touch /ro/from-host 2>&1
echo "== remount"; mount -o remount,rw /ro 2>&1; echo x >/ro/new 2>&1; mount -i -o remount,bind,rw /ro 2>&1; echo x >/ro/new2 2>&1
echo "== control"; echo x >/rw/new && cat /rw/new
echo "== end"`})
	r.ok(t)
	r.says(t, "read", `^hello from the host$`)
	r.says(t, "control", `^x$`)
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Errorf("the read-only share now holds %v", entries)
	}
	if _, err := os.Stat(filepath.Join(writable, "new")); err != nil {
		t.Errorf("control: %v", err)
	}
}

// TestEditsSeen: an edit on either side is seen on the other within a second.
func TestEditsSeen(t *testing.T) {
	t.Parallel()
	claim(t, "edits")
	dir := workspace(t)
	s := start(t, box{flags: []string{"-w", dir}, script: `
cat from-host; ls; stat new 2>/dev/null; echo up
n=0; until grep -q changed from-host && test -e new; do sleep 0.05; n=$((n+1)); test $n -lt 200 || exit 1; done
echo "seen after $((n*50)) ms"; echo guest-edit >from-guest; sleep 1000`})
	began := time.Now()
	os.WriteFile(filepath.Join(dir, "from-host"), []byte("changed on the host\n"), 0o640)
	os.WriteFile(filepath.Join(dir, "new"), nil, 0o640)
	s.until("the edit is seen", func() bool { return strings.Contains(s.out.String(), "seen after") })
	took := time.Since(began)
	s.until("the guest's edit is seen", func() bool { _, err := os.Stat(filepath.Join(dir, "from-guest")); return err == nil })
	if took > 2*time.Second { // a second, and the shell's own loop under emulation
		t.Errorf("the edit was seen after %v", took)
	}
}

// TestOwnDirectories: a share that holds sb's own directories does not show
// them, and cannot be written.
func TestOwnDirectories(t *testing.T) {
	t.Parallel()
	claim(t, "own-dirs")
	r := run(t, box{flags: []string{"-v", os.Getenv(dataVar) + ":/all"}, script: "echo inside"})
	if r.code != 125 || !strings.Contains(r.stderr, "the guest could replace "+filepath.Join(os.Getenv(dataVar), "sb")) || r.stdout != "" {
		t.Errorf("shared for writing: exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
	r = run(t, box{flags: []string{"-v", os.Getenv(dataVar) + ":/all:ro"}, script: `
echo "== all"; ls /all; ls /all/sb 2>&1; cat /all/sb/images/* 2>&1 | head -c 100
echo "== end"`})
	r.ok(t)
	r.says(t, "all", `(?s)tools.*No such file`)
	if strings.Contains(r.section("all"), "erofs") {
		t.Errorf("the guest sees %s", r.section("all"))
	}
}

// TestToolsInWorkspace: where the tools lie in the workspace, what the guest does
// to them is refused, and what it does beside them is not.
func TestToolsInWorkspace(t *testing.T) {
	t.Parallel()
	claim(t, "own-tools")
	dir := workspace(t)
	bin := filepath.Join(dir, "out[1]", "bin")
	if err := os.Mkdir(filepath.Dir(bin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(bin, os.DirFS(os.Getenv(binVar))); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"sb-run", "sb-gate", "sb-dns", "sb-vm", "sb-image", "sb-guest"} {
		if err := os.Chmod(filepath.Join(bin, tool), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, box{bin: bin, flags: []string{"-w", dir}, script: `
try() { "$@" 2>&1 && echo "BROKE OUT: $*"; }
echo "== tools"; cd out*/bin || exit 1
for f in sb-gate sb-dns sb-vm sb-run sb-guest; do
  try mv $f moved; try rm -f $f; try sh -c "echo x >>$f"; try cp /bin/true $f; try chmod 4755 $f; try ln $f ../linked; try ln -sf /bin/true $f; try truncate -s 0 $f
done
try touch sb-broken; try mkdir d; cd ..; try mv bin other; cd ..; try mv out* other; try rmdir out*
echo "== control"; o="out[1]"; echo x >"$o/beside" && mv "$o/beside" "$o/moved" && cat "$o/moved"; mkdir d && mv d e && ls -d e; ls out*/bin | grep -c sb-gate
echo "== end"`})
	r.ok(t)
	r.says(t, "control", `^x\ne\n1$`)
	if got := r.section("tools"); strings.Contains(got, "BROKE OUT") || strings.Count(got, "not permitted") < 40 {
		t.Errorf("the guest changed the tools:\n%s", got)
	}
	if said := strings.Count(r.stderr, bin+" is read-only in the guest"); said != 1 {
		t.Errorf("said %d times: %s", said, r.stderr)
	}
	for _, tool := range []string{"sb-run", "sb-gate", "sb-guest"} {
		want, err1 := os.ReadFile(filepath.Join(os.Getenv(binVar), tool))
		got, err2 := os.ReadFile(filepath.Join(bin, tool))
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is another now (%v, %v)", tool, err1, err2)
		}
	}
}

// TestGit: everyday git works on a share, and its tree is the same on both sides.
func TestGit(t *testing.T) {
	t.Parallel()
	claim(t, "git")
	dir := workspace(t)
	r := run(t, box{flags: []string{"-w", dir}, script: `
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
set -e
git init -q -b main .; mkdir src; for i in $(seq 60); do echo $i >src/$i; done
git add -A; git commit -qm one; git checkout -qb topic; sed -i s/1/one/ src/1; git mv src/2 src/two; git commit -qam two
git checkout -q main; git merge -q topic; git gc -q; git fsck
git status --porcelain | wc -l
echo "== log"; git log --oneline | wc -l
echo "== end"`})
	r.ok(t)
	r.says(t, "log", `^2$`)
	cmd := exec.Command("git", "-c", "safe.directory=*", "-C", dir, "status", "--porcelain")
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) != 0 {
		t.Errorf("git status on the host: %v\n%s", err, out)
	}
}
