//go:build linux

package share

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// watching runs a test with directories watched and with none.
func watching(t *testing.T, test func(t *testing.T, m *mounted)) {
	for name, watches := range map[string]int{"watched": 0, "unwatched": -1} {
		t.Run(name, func(t *testing.T) { test(t, mount(t, exportSpec{Watches: watches})) })
	}
}

// settled lets files get older than a tick of the clock, so that the guest is
// told their state for long.
func settled(t *testing.T, paths ...string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	for _, p := range paths {
		must(t, os.Chtimes(p, old, old))
	}
	time.Sleep(2 * tick)
}

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	var s []string
	for _, e := range list {
		s = append(s, e.Name())
	}
	return strings.Join(s, " ")
}

// Every change that the host makes is seen in the guest within a second, though
// the guest has just looked and holds the old state.
func TestHostChangesAreSeen(t *testing.T) {
	watching(t, func(t *testing.T, m *mounted) {
		for _, c := range hostChanges {
			t.Run(c.name, func(t *testing.T) {
				must(t, os.Mkdir(m.on(c.name), 0o755))
				for _, f := range []string{"f", "g", "d/x"} {
					must(t, os.MkdirAll(filepath.Dir(m.on(c.name+"/"+f)), 0o755))
					write1(t, m.on(c.name+"/"+f), "old "+f)
				}
				settled(t, m.on(c.name+"/f"), m.on(c.name+"/g"), m.on(c.name+"/d"), m.on(c.name))
				// Twice, so that what is told for long has been told.
				for range 2 {
					c.look(t, m.in(c.name))
				}
				before := c.look(t, m.in(c.name))
				sh(t, m.on(c.name), c.change)
				want := c.look(t, m.on(c.name))
				if before == want {
					t.Fatalf("the change does not show on the host: %q", want)
				}
				took := within(t, fmt.Sprintf("%q becomes %q", before, want), func() bool { return c.look(t, m.in(c.name)) == want })
				t.Log(took)
			})
		}
	})
}

var hostChanges = []struct {
	name, change string
	look         func(t *testing.T, dir string) string
}{
	{"content", "printf 'new f' >f", text("f")},
	{"longer", "echo more >>f", text("f")},
	{"inplace", "printf X | dd of=f conv=notrunc status=none", text("f")},
	{"truncated", ": >f", text("f")},
	{"replaced", "printf 'a new file' >h; mv h f", text("f")},
	{"removed", "rm f", text("f")},
	{"made", "printf made >h", text("h")},
	{"movedin", "mv f h", text("h")},
	{"movedaway", "mv f h", text("f")},
	{"linked", "ln f h", text("h")},
	{"mode", "chmod 600 f", mode("f")},
	{"times", "touch -d @77 f", mode("f")},
	{"listing", "touch h", names},
	{"listing2", "rm f", names},
	{"dirmade", "mkdir e; touch e/y", text("e/y")},
	{"dirmoved", "mv d e", text("e/x")},
	{"dirgone", "rm -r d", text("d/x")},
	{"dirreplaced", "rm -r d; mkdir d; printf other >d/x", text("d/x")},
	{"dirmode", "chmod 700 d", mode("d")},
	{"tolink", "rm f; ln -s g f", text("f")},
	// Without opening anything, of which the server would hear.
	{"size", "echo more >>f", size("f")},
	{"gone", "rm f", size("f")},
	{"comes", "echo x >h", size("h")},
	{"swapped", "echo something longer >h; mv h f", size("f")},
	{"cut", ": >d/x", size("d/x")},
	{"xchange", "mv f h; mv g f; mv h g", text("f")},
	{"dirtofile", "rm -r d; printf file >d", text("d")},
	{"filetodir", "rm f; mkdir f; printf in >f/x", text("f/x")},
}

func text(name string) func(*testing.T, string) string {
	return func(_ *testing.T, dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.(*os.PathError).Err.Error()
		}
		return string(b)
	}
}

func mode(name string) func(*testing.T, string) string {
	return func(t *testing.T, dir string) string {
		st, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		return fmt.Sprint(st.Mode(), st.ModTime().UnixNano())
	}
}

func size(name string) func(*testing.T, string) string {
	return func(_ *testing.T, dir string) string {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return err.(*os.PathError).Err.Error()
		}
		return fmt.Sprint(st.Size())
	}
}

// What the guest does is on the host when the call returns.
func TestGuestChangesAreSeen(t *testing.T) {
	m := mount(t, exportSpec{})
	for _, c := range hostChanges {
		t.Run(c.name, func(t *testing.T) {
			must(t, os.MkdirAll(m.on(c.name+"/d"), 0o755))
			write1(t, m.on(c.name+"/f"), "old f")
			write1(t, m.on(c.name+"/g"), "old g")
			write1(t, m.on(c.name+"/d/x"), "old x")
			sh(t, m.in(c.name), c.change)
			if in, on := c.look(t, m.in(c.name)), c.look(t, m.on(c.name)); in != on {
				t.Errorf("the guest sees %q, the host %q", in, on)
			}
		})
	}
}

// An open file and a mapping show the host's change, too.
func TestOpenFilesFollow(t *testing.T) {
	watching(t, func(t *testing.T, m *mounted) {
		write1(t, m.on("f"), "old")
		settled(t, m.on("f"))
		f, err := os.Open(m.in("f"))
		must(t, err)
		defer f.Close()
		look := func() string {
			b := make([]byte, 10)
			n, _ := f.ReadAt(b, 0)
			return string(b[:n])
		}
		for range 2 {
			if got := look(); got != "old" {
				t.Fatalf("it begins with %q", got)
			}
		}
		write1(t, m.on("f"), "new!")
		within(t, "the open file shows it", func() bool { return look() == "new!" })
	})
}

// A guest that works by itself is not called back.
func TestNoSelfInvalidation(t *testing.T) {
	counts := filepath.Join(t.TempDir(), "counts")
	m := mount(t, exportSpec{Counts: counts})
	sh(t, m.guest, `
		for i in $(seq 300); do echo $i >f$i; done; ls -l >/dev/null
		for i in $(seq 300); do echo more >>f$i; mv f$i g$i; stat g$i >/dev/null; done; ls -l >/dev/null
		for i in $(seq 100); do chmod 600 g$i; touch -d @$i g$i; stat g$i; ln g$i h$i; rm g$i; mkdir d$i; done >/dev/null
		ls -lR >/dev/null`)
	time.Sleep(100 * time.Millisecond)
	if acks := m.asked(t, counts)[fusewire.Ack]; acks > 60 {
		t.Errorf("%d notifications for 1900 changes of its own", acks)
	} else {
		t.Logf("%d notifications", acks)
	}
	// Control: the host's changes call back.
	sh(t, m.host, "for i in $(seq 100); do echo host >>h$i; done")
	within(t, "the host's change is seen", func() bool { return strings.HasSuffix(text("h100")(t, m.guest), "host\n") })
	sum := 0
	soon(t, "notifications come", func() bool { sum += m.asked(t, counts)[fusewire.Ack]; return sum >= 50 })
}

// A tree that nobody changes is asked about once.
func TestWarmTreeAsksLittle(t *testing.T) {
	counts := filepath.Join(t.TempDir(), "counts")
	m := mount(t, exportSpec{Counts: counts})
	const files = 2000
	for i := range files {
		p := m.on(fmt.Sprintf("tree/d%02d/f%04d", i/50, i))
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		write1(t, p, fmt.Sprint(i))
		// Older than the index, or git reads them again each time.
		must(t, os.Chtimes(p, time.Time{}, time.Now().Add(-time.Hour)))
	}
	env := strings.Fields("GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_OPTIONAL_LOCKS=0")
	sh(t, m.on("tree"), "git init -q; git add -A; git -c user.name=a -c user.email=a@a commit -qm one", env...)
	time.Sleep(2 * tick)
	status := func() int {
		sh(t, m.in("tree"), `test -z "$(git -c safe.directory=* status --porcelain)"`, env...)
		sum := 0
		for op, n := range m.asked(t, counts) {
			if op != fusewire.Forget && op != fusewire.BatchForget {
				sum += n
			}
		}
		return sum
	}
	cold, second, warm := status(), status(), status()
	t.Logf("git status on %d files asks %d times, then %d, then %d", files, cold, second, warm)
	if cold < files/50 {
		t.Errorf("only %d requests at first: the count is wrong", cold)
	}
	if warm > 150 {
		t.Errorf("%d requests when nothing has changed", warm)
	}
	// And it does notice.
	write1(t, m.on("tree/d07/new"), "x")
	within(t, "git sees the new file", func() bool {
		return sh(t, m.in("tree"), "git -c safe.directory=* status --porcelain", env...) == "?? d07/new\n"
	})
}

// More events than the kernel keeps: nothing stale is left.
func TestOverflow(t *testing.T) {
	m := mount(t, exportSpec{})
	sh(t, m.host, "for i in $(seq 200); do echo old >f$i; done")
	settled(t, m.host)
	for range 3 {
		sh(t, m.guest, "ls -l >/dev/null; test ! -e h")
	}
	must(t, m.serve.Process.Signal(unix.SIGSTOP))
	for i := range 20000 {
		p := m.on(fmt.Sprintf("t%d", i%7))
		write1(t, p, "")
		must(t, os.Remove(p))
	}
	sh(t, m.host, "for i in $(seq 200); do echo longer >f$i; done; rm f7; touch h")
	must(t, m.serve.Process.Signal(unix.SIGCONT))
	for i := 1; i <= 200; i++ {
		name := fmt.Sprintf("f%d", i)
		want := size(name)(t, m.host)
		within(t, name, func() bool { return size(name)(t, m.guest) == want })
	}
	within(t, "the new file", func() bool { return size("h")(t, m.guest) == "0" })
}

// On a clock that ticks too slowly for the change to show in the directory's
// times, a name that the guest does not know tells that its listing is old.
func TestUnknownNameInSameTick(t *testing.T) {
	for _, listed := range []bool{true, false} {
		s := &session{nodes: &nodes{rules: &rules{}}}
		dir := &node{id: 5, typ: unix.S_IFDIR, listed: listed}
		inode, entry := newNotices(s).compareName(doubt{dir, "new"}, &unix.Statx_t{}, nil)
		if (inode == dir) != listed || entry {
			t.Errorf("listed %v: %v, %v", listed, inode, entry)
		}
	}
}

// The guest may know only so many files; it goes on all the same.
func TestCrowd(t *testing.T) {
	m := mount(t, exportSpec{Nodes: 1000})
	for i := range 5000 {
		p := m.on(fmt.Sprintf("d%02d/f%d", i/100, i))
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		write1(t, p, "x")
	}
	for d := range 50 {
		dir := fmt.Sprintf("d%02d", d)
		for i := range 100 {
			soon(t, "a file can be read", func() bool { return text(fmt.Sprintf("%s/f%d", dir, d*100+i))(t, m.guest) == "x" })
		}
	}
}
