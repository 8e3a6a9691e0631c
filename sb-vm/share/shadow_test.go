//go:build linux

package share

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var gitShadows = []string{".git/config", ".git/config.lock", ".git/hooks", ".git/modules/*/config", ".git/modules/*/config.lock"}

// shadowTree is a share with a repository of the host's, and its store.
func shadowTree(t *testing.T) *mounted {
	t.Helper()
	dir, store := t.TempDir(), t.TempDir()
	sh(t, dir, "git init -q -b main . && git config core.abbrev 9 && echo 'exit 0' >.git/hooks/pre-commit && chmod 755 .git/hooks/pre-commit && mkdir -p .git/modules/m && echo '[core]' >.git/modules/m/config", gitEnv...)
	m := mount(t, exportSpec{Dir: dir, Shadowed: gitShadows, Store: store, Protected: []string{".git/commondir"}})
	t.Setenv("STORE", store)
	return m
}

var gitEnv = []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}

// TestShadowGit: git's everyday writes land in the store; the host's stay.
func TestShadowGit(t *testing.T) {
	m := shadowTree(t)
	before := read1(t, m.on(".git/config"))
	hooks := snapshot(t, m.on(".git/hooks"))
	if got := sh(t, m.guest, "git config core.abbrev", gitEnv...); got != "9\n" {
		t.Errorf("the guest reads %q of the host's", got)
	}
	out := sh(t, m.guest, `echo 1 >f; git add f; git commit -qm one
git remote add origin https://example.org/r.git; git checkout -q -b topic --track main
git config branch.topic.remote; git config core.fsmonitor /bin/false-$$ && git config --unset core.fsmonitor
git config core.abbrev 11; git config core.abbrev; cat .git/config | grep -c abbrev
printf '#!/bin/sh\necho hook >&2\nexit 1\n' >.git/hooks/pre-commit; git commit --allow-empty -qm two 2>&1 || echo refused
cp /bin/true .git/hooks/post-commit; ls .git/hooks | grep -c '^p.*commit$'; rm .git/hooks/pre-commit; git commit --allow-empty -qm two
git config -f .git/modules/m/config core.worktree ../x; git config -f .git/modules/m/config core.worktree
echo '[a]' >>.git/config; tail -1 .git/config`, gitEnv...)
	if want := ".\n11\n1\nhook\nrefused\n2\n../x\n[a]\n"; out != want {
		t.Errorf("the guest says %q, want %q", out, want)
	}
	if now := read1(t, m.on(".git/config")); now != before {
		t.Errorf("the host's configuration is %q now", now)
	}
	if now := snapshot(t, m.on(".git/hooks")); now != hooks {
		t.Errorf("the host's hooks were\n%s\nand are\n%s", hooks, now)
	}
	store := os.Getenv("STORE")
	if text := read1(t, filepath.Join(store, ShadowName(".git/config"))); !strings.Contains(text, "example.org/r.git") || !strings.Contains(text, "abbrev = 11") {
		t.Errorf("the shadow is %q", text)
	}
	if _, err := os.Lstat(filepath.Join(store, ShadowName(".git/hooks"), "post-commit")); err != nil {
		t.Error(err)
	}
	// Control: what is not shadowed is the host's.
	if got := sh(t, m.host, "git log --oneline topic | wc -l; git status --porcelain", gitEnv...); strings.TrimSpace(got) != "2" {
		t.Errorf("on the host: %q", got)
	}
}

// TestShadowRefused: what the host has at a shadowed path cannot be taken away,
// and what leads there cannot be replaced.
func TestShadowRefused(t *testing.T) {
	for _, changed := range []bool{false, true} {
		m := shadowTree(t)
		if changed {
			sh(t, m.guest, "git config a.b c; touch .git/hooks/x", gitEnv...)
		}
		before := snapshot(t, m.on(".git"))
		write1(t, m.on("f"), "1")
		out := sh(t, m.guest, `for c in 'rm .git/config' 'mv .git/config .git/c' 'mv .git git' 'mv .git/hooks .git/h' 'rmdir .git/hooks' 'ln .git/config c' 'ln f .git/hooks/f' 'mkdir .git/commondir' 'mv .git/modules/m .git/n' 'mv .git/modules .git/n'; do $c 2>&1 && echo "BROKE OUT: $c"; done; true`, "LC_ALL=C")
		if strings.Contains(out, "BROKE OUT") || strings.Count(out, "\n") != 10 {
			t.Errorf("changed %v: %s", changed, out)
		}
		if now := snapshot(t, m.on(".git")); now != before {
			t.Errorf("it was\n%s\nand is\n%s", before, now)
		}
		sh(t, m.guest, "touch .git/f; mv .git/f .git/g; mv .git/g .git/hooks/g; rm .git/hooks/g; mkdir d; mv d e; rmdir e")
	}
}

// TestShadowInit: where the host has no repository the guest can make one, and
// git on the host finds none of its configuration and hooks.
func TestShadowInit(t *testing.T) {
	store := t.TempDir()
	m := mount(t, exportSpec{Shadowed: gitShadows, Store: store})
	sh(t, m.guest, "git init -q -b main .; git config core.fsmonitor /bin/false; git config --unset core.fsmonitor; echo 1 >f; git add f; git commit -qm one; git config core.editor evil", gitEnv...)
	for _, name := range []string{".git/config", ".git/hooks", ".git/config.lock"} {
		if _, err := os.Lstat(m.on(name)); err == nil {
			t.Errorf("the host has %s", name)
		}
	}
	if got := sh(t, m.host, "git config --local core.editor || echo none; git log --oneline | wc -l", gitEnv...); got != "none\n1\n" {
		t.Errorf("on the host: %q", got)
	}
	if got := sh(t, m.guest, "git config core.editor", gitEnv...); got != "evil\n" {
		t.Errorf("in the guest: %q", got)
	}
}

// TestShadowHardLink: the host's hook is not written by another name of it, and by
// its own the guest's is.
func TestShadowHardLink(t *testing.T) {
	m := shadowTree(t)
	sh(t, m.host, "mkdir scripts; ln .git/hooks/pre-commit scripts/pc.sh; ln .git/modules/m/config m; echo 1 >f; ln f scripts/f")
	before := read1(t, m.on("scripts/pc.sh"))
	out := sh(t, m.guest, `for c in 'echo 2 >>scripts/pc.sh' 'echo 2 >>m' 'ln scripts/pc.sh x' 'echo 2 >>.git/hooks/pre-commit' 'echo 2 >>scripts/pc.sh' 'echo 2 >>.git/hooks/pre-commit' 'echo 2 >>scripts/f'; do (eval "$c") 2>/dev/null && echo yes || echo no; done; tail -n 2 .git/hooks/pre-commit; cat f`)
	if want := "no\nno\nno\nyes\nno\nyes\nyes\n2\n2\n1\n2\n"; out != want {
		t.Errorf("the guest says %q, want %q", out, want)
	}
	if now := read1(t, m.on(".git/hooks/pre-commit")); now != before {
		t.Errorf("the host's hook is %q now", now)
	}
}

// TestShadowHandle: a file of the host's that is open for reading is not written
// by way of that; nor is one that is too large to be copied.
func TestShadowHandle(t *testing.T) {
	m := shadowTree(t)
	before := read1(t, m.on(".git/config"))
	out := sh(t, m.guest, "exec 3<.git/config; echo '[x]' >>.git/config; (echo '[y]' >>/proc/self/fd/3) 2>/dev/null || true; tail -1 .git/config")
	if now := read1(t, m.on(".git/config")); now != before || !strings.Contains(out, "]") {
		t.Errorf("the host's is %q, the guest says %q", now, out)
	}
	must(t, os.WriteFile(m.on(".git/modules/m/config"), make([]byte, maxShadow+1), 0o644))
	soon(t, "the size is seen", func() bool {
		st, err := os.Stat(m.in(".git/modules/m/config"))
		return err == nil && st.Size() > maxShadow
	})
	_, err := os.OpenFile(m.in(".git/modules/m/config"), os.O_WRONLY|os.O_APPEND, 0)
	wantErr(t, "too large", err, unix.EPERM)
}

// TestShadowSpellings: where names take several spellings, none leads to the host's
// file.
func TestShadowSpellings(t *testing.T) {
	changed := map[bool]int{}
	for _, name := range []string{"CONFIG", "Config", "config", "head", "HEAD", "h\xffad"} {
		for _, ruled := range []bool{false, true} {
			// Mounted for each, as this kernel may hold what it saw before.
			loose := mount(t, exportSpec{Fold: foldCase})
			must(t, os.MkdirAll(loose.on("src/.git"), 0o755))
			write1(t, loose.on("src/.git/config"), "host")
			spec := exportSpec{Dir: loose.in("src")}
			if ruled {
				spec.Shadowed, spec.Store = []string{"/.git/config", "/.git/head"}, t.TempDir()
			}
			r := newRaw(t, spec).start()
			git := r.node(1, ".git")
			if n, err := r.lookup(git, name); err == nil && n != 0 {
				if fh, err := r.open(n, unix.O_WRONLY|unix.O_TRUNC); err == nil {
					r.write(n, fh, "guest")
				}
			} else if n, fh, err := r.create(git, name); err == nil {
				r.write(n, fh, "guest")
			}
			_, err := os.Lstat(loose.on("src/.git/head"))
			r.rename(git, name, git, "moved", 0)
			r.unlink(git, name)
			if text, _ := os.ReadFile(loose.on("src/.git/config")); string(text) != "host" || err == nil {
				changed[ruled]++
				if ruled {
					t.Errorf("%q: the host's is %q; head: %v", name, text, err)
				}
			}
			r.end()
		}
	}
	if changed[false] != 6 {
		t.Errorf("control: %d of 6 change something", changed[false])
	}
}

// TestReadOnlyFileSystem: a directory of one can be shared, and every change says why
// it cannot be.
func TestReadOnlyFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounting takes root")
	}
	dir := t.TempDir()
	write1(t, filepath.Join(dir, "f"), "text")
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	m := mount(t, exportSpec{Dir: dir, Shadowed: gitShadows, Store: t.TempDir()})
	if got := read1(t, m.in("f")); got != "text" {
		t.Errorf("%q", got)
	}
	for what, err := range map[string]error{
		"write": os.WriteFile(m.in("f"), nil, 0o644), "create": os.WriteFile(m.in("new"), nil, 0o644),
		"mkdir": os.Mkdir(m.in("d"), 0o755), "remove": os.Remove(m.in("f")),
	} {
		wantErr(t, what, err, unix.EROFS)
	}
}
