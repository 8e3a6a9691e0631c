//go:build linux

package share

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const ordinary = 4242 // an ordinary user of the host

// servers runs a test with a server of root's and with one of an ordinary user.
func servers(t *testing.T, spec exportSpec, test func(t *testing.T, m *mounted)) {
	for _, uid := range []uint32{0, ordinary} {
		t.Run(fmt.Sprintf("uid%d", uid), func(t *testing.T) {
			spec := spec
			spec.UID, spec.GuestUID, spec.GuestGID = uid, 1000, 1000
			test(t, mount(t, spec))
		})
	}
}

// must fails unless err is nil or one of those allowed.
func must(t testing.TB, err error, allowed ...error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	t.Fatal(err)
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestFiles(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		f, err := os.OpenFile(m.in("a"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
		must(t, err)
		_, err = os.OpenFile(m.in("a"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
		wantErr(t, "O_EXCL on a file that is there", err, unix.EEXIST)
		_, err = f.WriteAt([]byte("hello world"), 0)
		must(t, err)
		must(t, f.Truncate(5))
		must(t, f.Sync())
		if got := read1(t, m.on("a")); got != "hello" {
			t.Errorf("after truncate: %q", got)
		}
		must(t, f.Close())
		app, err := os.OpenFile(m.in("a"), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		// The host appends in between: nothing of it may be overwritten.
		sh(t, m.host, "printf HOST >>a")
		_, err = app.WriteString("guest")
		must(t, err)
		must(t, app.Close())
		if got := read1(t, m.on("a")); got != "helloHOSTguest" {
			t.Errorf("two appended: %q", got)
		}
		write1(t, m.in("a"), "new")
		if got := read1(t, m.on("a")); got != "new" {
			t.Errorf("opened with O_TRUNC: %q", got)
		}
		must(t, os.Truncate(m.in("a"), 1))
		if st, _ := os.Stat(m.in("a")); st.Size() != 1 || st.Mode().Perm() != 0o640 {
			t.Errorf("size and mode are %d, %v", st.Size(), st.Mode())
		}
		must(t, os.Remove(m.in("a")))
		_, err = os.Stat(m.on("a"))
		wantErr(t, "removed", err, unix.ENOENT)
	})
}

func TestModes(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		sh(t, m.guest, "umask 0; touch open; mkdir wide; mkfifo pipe; umask 077; touch tight")
		for name, want := range map[string]os.FileMode{"open": 0o666, "wide": 0o777, "pipe": 0o666, "tight": 0o600} {
			if st, err := os.Lstat(m.on(name)); err != nil || st.Mode().Perm() != want {
				t.Errorf("%s has mode %v, want %v", name, st.Mode().Perm(), want)
			}
		}
		for _, mode := range []uint32{0o4755, 0o2755, 0o6777} {
			must(t, unix.Chmod(m.in("open"), mode))
			if st, _ := os.Stat(m.on("open")); st.Sys().(*syscall.Stat_t).Mode&0o7777 != mode&0o777 {
				t.Errorf("chmod %o gives %o", mode, st.Sys().(*syscall.Stat_t).Mode)
			}
		}
		fd, err := unix.Open(m.in("suid"), unix.O_CREAT|unix.O_WRONLY, 0o4755)
		must(t, err)
		unix.Close(fd)
		if st, _ := os.Stat(m.on("suid")); st.Mode()&os.ModeSetuid != 0 {
			t.Error("a file was created with the set-user-ID bit")
		}
		must(t, unix.Chmod(m.in("wide"), 0o1777))
		if st, _ := os.Stat(m.on("wide")); st.Mode()&os.ModeSticky == 0 {
			t.Error("the sticky bit is lost")
		}
	})
}

func TestOwner(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		must(t, os.Chmod(m.host, 0o777))
		agent := "setpriv --reuid=1000 --regid=1000 --clear-groups sh -euc "
		sh(t, m.guest, agent+`'umask 077; echo secret >mine; cat mine; echo more >>mine; mkdir d; touch d/x; rm -r d'`)
		var st unix.Stat_t
		must(t, unix.Stat(m.in("mine"), &st))
		if st.Uid != 1000 || st.Gid != 1000 {
			t.Errorf("in the guest it belongs to %d:%d", st.Uid, st.Gid)
		}
		sh(t, m.guest, "chown 77:88 mine; chown -h 5 mine")
		must(t, unix.Stat(m.on("mine"), &st))
		if want := uint32(os.Getuid()); t.Name() == "TestOwner/uid4242" && st.Uid != ordinary || t.Name() == "TestOwner/uid0" && st.Uid != want {
			t.Errorf("on the host it belongs to %d", st.Uid)
		}
		// Another user of the guest is kept out, by the guest's kernel.
		if out := sh(t, m.guest, "setpriv --reuid=1001 --regid=1001 --clear-groups cat mine 2>&1 || echo refused"); !strings.Contains(out, "refused") {
			t.Errorf("user 1001 reads %q", out)
		}
		// Somebody else's file that has the number of the guest's user.
		write1(t, m.on("foreign"), "")
		must(t, os.Chown(m.on("foreign"), 1000, 1000))
		must(t, unix.Stat(m.in("foreign"), &st))
		if st.Uid != nobody || st.Gid != nobody {
			t.Errorf("the foreign file belongs to %d:%d", st.Uid, st.Gid)
		}
		write1(t, m.on("other"), "")
		must(t, os.Chown(m.on("other"), 1234, 1235))
		must(t, unix.Stat(m.in("other"), &st))
		if st.Uid != 1234 || st.Gid != 1235 {
			t.Errorf("the other file belongs to %d:%d", st.Uid, st.Gid)
		}
	})
}

// The guest's root may do what modes forbid the owner.
func TestGuestRoot(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		sh(t, m.guest, `
			mkdir -p d/e; echo 1 >d/e/f; chmod 444 d/e/f; chmod 555 d/e d
			echo 2 >>d/e/f; echo 3 >d/e/g; mv d/e/g d/h; ln d/h d/e/i; ln -s x d/s; mkdir d/k; mkfifo d/p
			echo 0 >none; chmod 0 none; cat none; echo 1 >>none; truncate -s 1 none
			chmod 0 d/k; ls d/k; rmdir d/k; chmod 300 d/e; ls d/e`)
		for name, want := range map[string]os.FileMode{"d": 0o555, "d/e": 0o300, "d/e/f": 0o444, "none": 0} {
			if st, err := os.Stat(m.on(name)); err != nil || st.Mode().Perm() != want {
				t.Errorf("%s is left with mode %v, want %v", name, st.Mode().Perm(), want)
			}
		}
		sh(t, m.guest, "rm -rf d none; test ! -e d")
	})
}

func TestRename(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		at := func(name string) (int, string) { return unix.AT_FDCWD, m.in(name) }
		ren := func(from, to string, flags uint) error {
			fd1, p1 := at(from)
			fd2, p2 := at(to)
			return unix.Renameat2(fd1, p1, fd2, p2, flags)
		}
		sh(t, m.guest, "echo a >a; echo b >b; mkdir d e; echo x >d/x")
		wantErr(t, "NOREPLACE", ren("a", "b", unix.RENAME_NOREPLACE), unix.EEXIST)
		must(t, ren("a", "c", unix.RENAME_NOREPLACE))
		must(t, ren("c", "d", unix.RENAME_EXCHANGE))
		if got := read1(t, m.in("c/x")) + read1(t, m.in("d")); got != "x\na\n" {
			t.Errorf("after the exchange: %q", got)
		}
		must(t, ren("c", "d", unix.RENAME_EXCHANGE))
		wantErr(t, "a directory into itself", ren("d", "d/y", 0), unix.EINVAL)
		wantErr(t, "a file over a directory", ren("b", "d", 0), unix.EISDIR)
		if err := ren("e", "d", 0); err != unix.ENOTEMPTY && err != unix.EEXIST { // XFS says EEXIST
			t.Errorf("over a full directory: %v", err)
		}
		must(t, ren("d", "e", 0))
		if got := read1(t, m.in("e/x")); got != "x\n" {
			t.Errorf("in the renamed directory: %q", got)
		}
		// What is open stays open under another name, and when it is replaced.
		f, err := os.Open(m.in("b"))
		must(t, err)
		must(t, ren("c", "b", 0))
		buf := make([]byte, 9)
		n, _ := f.Read(buf)
		if got := string(buf[:n]) + read1(t, m.in("b")); got != "b\na\n" {
			t.Errorf("replaced while open: %q", got)
		}
		f.Close()
		must(t, os.Link(m.in("b"), m.in("l")))
		must(t, ren("b", "l", 0)) // one file: POSIX says nothing happens
		if got := read1(t, m.in("b")) + read1(t, m.in("l")); got != "a\na\n" {
			t.Errorf("two links to one file: %q", got)
		}
	})
}

func TestLinks(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		long := strings.Repeat("x", 1000)
		sh(t, m.guest, "echo f >f; ln f g; ln -s nowhere/at/all s; ln s s2; ln -s /etc/passwd out")
		must(t, os.Symlink(long, m.in("long")))
		if got, err := os.Readlink(m.in("long")); err != nil || got != long {
			t.Errorf("a long link: %d bytes, %v", len(got), err)
		}
		if got, _ := os.Readlink(m.on("s2")); got != "nowhere/at/all" {
			t.Errorf("a hard link to a symbolic one: %q", got)
		}
		var st unix.Stat_t
		must(t, unix.Stat(m.in("g"), &st))
		if st.Nlink != 2 {
			t.Errorf("%d links", st.Nlink)
		}
		must(t, os.Remove(m.in("f")))
		must(t, unix.Stat(m.in("g"), &st))
		if st.Nlink != 1 || read1(t, m.in("g")) != "f\n" {
			t.Errorf("%d links after one was removed", st.Nlink)
		}
		// Times of the link itself.
		sh(t, m.guest, "touch -h -d @7 s")
		must(t, unix.Lstat(m.on("s"), &st))
		if st.Mtim.Sec != 7 {
			t.Errorf("the link's time is %d", st.Mtim.Sec)
		}
	})
}

func TestTimes(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		write1(t, m.in("a"), "")
		ts := []unix.Timespec{{Sec: 1, Nsec: 123456789}, {Sec: -5, Nsec: 987654321}}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, m.in("a"), ts, 0))
		for _, path := range []string{m.in("a"), m.on("a")} {
			var st unix.Stat_t
			must(t, unix.Stat(path, &st))
			if st.Atim != ts[0] || st.Mtim != ts[1] {
				t.Errorf("%s: %v %v", path, st.Atim, st.Mtim)
			}
		}
		before := time.Now().Add(-time.Second)
		sh(t, m.guest, "touch a")
		if st, _ := os.Stat(m.on("a")); st.ModTime().Before(before) {
			t.Errorf("touch leaves %v", st.ModTime())
		}
	})
}
