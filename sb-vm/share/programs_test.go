//go:build linux

package share

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// need fails where a program of the suite is missing: the suite without it would
// say nothing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("this test needs %s", p)
		}
	}
}

func TestParallel(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		var wg sync.WaitGroup
		errs := make(chan error, 8)
		for w := range 8 {
			wg.Go(func() { errs <- churn(m.guest, w) })
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			must(t, err)
		}
		if out := sh(t, "/", fmt.Sprintf("diff -r %s %s", m.host, m.guest)); out != "" {
			t.Errorf("%s", out)
		}
		sh(t, m.guest, "rm -r *; test -z \"$(ls -A)\"")
	})
}

// churn makes, renames and removes in directories that all workers share.
func churn(dir string, worker int) error {
	for i := range 60 {
		d := filepath.Join(dir, fmt.Sprintf("shared%d/x/y", i%10))
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		name := filepath.Join(d, fmt.Sprintf("w%d-%d", worker, i))
		if err := os.WriteFile(name+".tmp", []byte(name), 0o644); err != nil {
			return err
		}
		if err := os.Rename(name+".tmp", name); err != nil {
			return err
		}
		common := filepath.Join(dir, "common")
		if err := os.Link(name, common); err == nil {
			err = os.Rename(common, filepath.Join(d, "won"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		} else if !errors.Is(err, os.ErrExist) {
			return err
		}
		if b, err := os.ReadFile(name); err != nil || string(b) != name {
			return fmt.Errorf("read %q, %w", b, err)
		}
		if i%3 == 0 {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestBigDirectory(t *testing.T) {
	m := mount(t, exportSpec{})
	const many = 100000
	d := m.on("big")
	must(t, os.Mkdir(d, 0o755))
	for i := range many {
		must(t, unix.Mknod(fmt.Sprintf("%s/name-%06d", d, i), unix.S_IFREG|0o644, 0))
	}
	names := map[string]bool{}
	f, err := os.Open(m.in("big"))
	must(t, err)
	defer f.Close()
	for {
		list, err := f.Readdirnames(1000)
		for _, n := range list {
			if names[n] {
				t.Fatalf("%s comes twice", n)
			}
			names[n] = true
		}
		if err != nil {
			break
		}
	}
	if len(names) != many {
		t.Fatalf("%d names", len(names))
	}
	seekdir(t, m.in("big"))
	must(t, os.RemoveAll(d))
	within(t, "it is gone", func() bool { _, err := os.Lstat(m.in("big/name-000000")); return os.IsNotExist(err) })
}

// seekdir goes back to places in a directory and reads on from there.
func seekdir(t *testing.T, dir string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	type mark struct {
		at   int64
		next []string
	}
	var marks []mark
	buf := make([]byte, 4096)
	read := func() []string {
		n, err := unix.Getdents(fd, buf)
		must(t, err)
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		return names
	}
	for range 50 {
		at, err := unix.Seek(fd, 0, unix.SEEK_CUR)
		must(t, err)
		marks = append(marks, mark{at, read()})
	}
	slices.Reverse(marks)
	for _, k := range marks {
		_, err := unix.Seek(fd, k.at, unix.SEEK_SET)
		must(t, err)
		// How many come at once is the kernel's choice.
		var got []string
		for len(got) < len(k.next) {
			more := read()
			if len(more) == 0 {
				break
			}
			got = append(got, more...)
		}
		if len(got) < len(k.next) || !slices.Equal(got[:len(k.next)], k.next) {
			t.Fatalf("at %d there was %v, now %v", k.at, k.next, got)
		}
	}
}

// Reading a directory goes on while its entries are removed, as rm -r does it.
func TestRemoveWhileReading(t *testing.T) {
	m := mount(t, exportSpec{})
	must(t, os.Mkdir(m.on("d"), 0o755))
	for i := range 2000 {
		write1(t, m.on(fmt.Sprintf("d/%04d", i)), "")
	}
	sh(t, m.guest, "rm -r d; test ! -e d")
	if _, err := os.Stat(m.on("d")); !os.IsNotExist(err) {
		t.Errorf("on the host: %v", err)
	}
}

func TestLocks(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		write1(t, m.in("a"), "0123456789")
		sh(t, m.guest, `python3 -c '
import fcntl, os, subprocess, sys
other = """
import fcntl, sys
f = open("a", "r+")
for take in (lambda: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)):
    try: take(); print("got")
    except OSError: print("refused")
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
"""
f = open("a", "r+")
run = lambda: subprocess.check_output([sys.executable, "-c", other]).decode().split()
assert run() == ["got", "got"], "control"
fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)
assert run() == ["refused", "refused"]
fcntl.flock(f, fcntl.LOCK_UN); fcntl.lockf(f, fcntl.LOCK_UN, 5, 0)
assert run() == ["got", "got"]'`)
	})
}

func TestSharedMappings(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		write1(t, m.in("a"), strings.Repeat("-", 20000))
		sh(t, m.guest, `python3 -c '
import mmap, os, subprocess, sys
f = open("a", "r+b"); w = mmap.mmap(f.fileno(), 0)
r = mmap.mmap(os.open("a", os.O_RDONLY), 0, prot=mmap.PROT_READ)
w[5000:5005] = b"hello"
assert r[5000:5005] == b"hello"
assert open("a", "rb").read()[5000:5005] == b"hello"
code = "import mmap, os; m = mmap.mmap(os.open(\"a\", os.O_RDWR), 0); assert m[5000:5005] == b\"hello\"; m[0:3] = b\"two\""
subprocess.check_call([sys.executable, "-c", code])
assert r[0:3] == b"two"
w.flush()'`)
		if got := read1(t, m.on("a")); got[:3] != "two" || got[5000:5005] != "hello" {
			t.Errorf("on the host: %q %q", got[:3], got[5000:5005])
		}
	})
}

func TestGit(t *testing.T) {
	need(t, "git")
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		git := "GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a"
		env := strings.Fields(git)
		must(t, os.Chmod(m.host, 0o777))
		agent(t, m.guest, `
			git init -q origin; cd origin
			git config gc.auto 0
			for i in $(seq 200); do mkdir -p d$((i % 7)); echo $i >d$((i % 7))/f$i; done
			ln -s d1/f1 link; chmod +x d2/f2
			git add -A; git commit -qm one
			for i in $(seq 20); do echo $i >>d1/f1; git commit -qam "c$i"; done
			test -z "$(git status --porcelain)"
			cd ..
			git clone -q origin local; git clone -q --no-local "file://$PWD/origin" copied
			cd copied
			git checkout -q -b side HEAD~5; echo x >new; git add new; git commit -qm side
			git rebase -q master 2>/dev/null || git rebase -q main
			git stash list; git gc -q --prune=now; git fsck --strict --no-dangling
			test -z "$(git status --porcelain)"
			rm d3/f3; test "$(git status --porcelain)" = " D d3/f3"; git checkout -q d3/f3
			git worktree add -q ../tree HEAD; cd ../tree; test -z "$(git status --porcelain)"`, env...)
		// The host sees the same repository and agrees.
		sh(t, m.on("copied"), `git -c safe.directory=* fsck --strict --no-dangling; test -z "$(git -c safe.directory=* status --porcelain)"`, env...)
		if out := sh(t, "/", fmt.Sprintf("diff -r --no-dereference %s %s", m.host, m.guest)); out != "" {
			t.Errorf("%s", out)
		}
	})
}

func TestSqlite(t *testing.T) {
	need(t, "python3")
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		worker := `
import sqlite3, sys
db = sqlite3.connect("w.db", timeout=60); db.execute("pragma synchronous=normal")
for i in range(150):
    db.execute("begin immediate"); n = db.execute("select count(*) from t").fetchone()[0]
    db.execute("insert into t values(?, ?)", (sys.argv[1], n)); db.commit()`
		must(t, os.WriteFile(m.in("w.py"), []byte(worker), 0o644))
		// Two that turn to WAL at once may find the file locked whatever their
		// timeout is (sqlite.org/wal.html, "Sometimes Queries Return
		// SQLITE_BUSY"): one does it, before the rest.
		sh(t, m.guest, `
			python3 -c '
import sqlite3
db = sqlite3.connect("w.db")
assert db.execute("pragma journal_mode=wal").fetchone()[0] == "wal"
db.execute("create table t(who, n)"); db.commit()'
			python3 w.py prep & python3 w.py a & python3 w.py b & wait
			python3 -c '
import sqlite3
db = sqlite3.connect("w.db")
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
assert [r[0] for r in db.execute("select n from t order by n")] == list(range(450))'
			python3 -c '
import sqlite3
db = sqlite3.connect("j.db"); db.execute("pragma journal_mode=delete"); db.execute("create table t(x)")
for i in range(50): db.execute("insert into t values(?)", (i,)); db.commit()'`)
		sh(t, m.host, `python3 -c '
import sqlite3
for name, n in ("w.db", 450), ("j.db", 50):
    db = sqlite3.connect(name); assert db.execute("select count(*) from t").fetchone()[0] == n, name'`)
	})
}

// npm ci of packages that are made here: no registry takes part.
func TestNpm(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("SKIPPED: npm is not installed")
	}
	need(t, "node")
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		deps := map[string]string{}
		work := t.TempDir()
		for i := range 12 {
			name := fmt.Sprintf("pack%d", i)
			dir := filepath.Join(work, name)
			must(t, os.MkdirAll(filepath.Join(dir, "lib/deep"), 0o755))
			write1(t, filepath.Join(dir, "package.json"), fmt.Sprintf(`{"name":%q,"version":"1.0.0","bin":{%q:"cli.js"}}`, name, name))
			write1(t, filepath.Join(dir, "cli.js"), "#!/usr/bin/env node\nconsole.log(require('./lib/deep/f7'))\n")
			for j := range 40 {
				write1(t, filepath.Join(dir, fmt.Sprintf("lib/deep/f%d.js", j)), fmt.Sprintf("module.exports = %d\n", i*100+j))
			}
			sh(t, dir, "npm pack --silent --offline --pack-destination "+m.guest)
			deps[name] = "file:" + name + "-1.0.0.tgz"
		}
		manifest, _ := json.Marshal(map[string]any{"name": "app", "version": "1.0.0", "dependencies": deps})
		write1(t, m.in("package.json"), string(manifest))
		home := "HOME=" + t.TempDir()
		sh(t, m.guest, `
			npm install --silent --offline --no-audit --no-fund
			find node_modules -type f ! -name .package-lock.json | sort | xargs sha256sum >/tmp/npm-share-$$; rm -rf node_modules
			npm ci --silent --offline --no-audit --no-fund
			find node_modules -type f ! -name .package-lock.json | sort | xargs sha256sum | cmp - /tmp/npm-share-$$; rm /tmp/npm-share-$$
			test "$(npx --no-install pack3)" = 307
			test -L node_modules/.bin/pack3`, home)
		if out := sh(t, "/", fmt.Sprintf("diff -r --no-dereference %s %s", m.host, m.guest)); out != "" {
			t.Errorf("%s", out)
		}
	})
}
