//go:build linux

package share

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNamelessFiles(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		fd, err := unix.Open(m.guest, unix.O_TMPFILE|unix.O_RDWR, 0o600)
		must(t, err)
		f := os.NewFile(uintptr(fd), "tmp")
		defer f.Close()
		_, err = f.WriteString("nameless")
		must(t, err)
		if entries, _ := os.ReadDir(m.host); len(entries) != 0 {
			t.Errorf("on the host there is %v", entries)
		}
		must(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, m.in("named"), unix.AT_SYMLINK_FOLLOW))
		if got := read1(t, m.on("named")); got != "nameless" {
			t.Errorf("%q", got)
		}
		// And the other way: a file whose name goes while it is open.
		g, err := os.OpenFile(m.in("named"), os.O_RDWR, 0)
		must(t, err)
		defer g.Close()
		must(t, os.Remove(m.in("named")))
		_, err = g.WriteAt([]byte("still"), 8)
		must(t, err)
		must(t, g.Chmod(0o400))
		must(t, g.Truncate(10))
		st, err := g.Stat()
		must(t, err)
		buf := make([]byte, 20)
		n, _ := g.ReadAt(buf, 0)
		if string(buf[:n]) != "namelessst" || st.Size() != 10 || st.Sys().(*syscall.Stat_t).Nlink != 0 || st.Mode().Perm() != 0o400 {
			t.Errorf("%q, %d bytes, %d links", buf[:n], st.Size(), st.Sys().(*syscall.Stat_t).Nlink)
		}
	})
}

func TestSparse(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		f, err := os.Create(m.in("big"))
		must(t, err)
		defer f.Close()
		const far = 5 << 30
		_, err = f.WriteAt([]byte("far"), far)
		must(t, err)
		fd := int(f.Fd())
		if at, err := unix.Seek(fd, 0, unix.SEEK_DATA); err != nil || at == 0 || at > far {
			t.Errorf("SEEK_DATA: %d, %v", at, err)
		}
		if at, err := unix.Seek(fd, 0, unix.SEEK_HOLE); err != nil || at != 0 {
			t.Errorf("SEEK_HOLE: %d, %v", at, err)
		}
		_, err = unix.Seek(fd, far+100, unix.SEEK_DATA)
		wantErr(t, "SEEK_DATA past the end", err, unix.ENXIO)
		var st unix.Stat_t
		must(t, unix.Fstat(fd, &st))
		if st.Size != far+3 || st.Blocks > 1000 {
			t.Errorf("%d bytes in %d blocks", st.Size, st.Blocks)
		}
		must(t, unix.Fallocate(fd, 0, 0, 1<<20))
		_, err = f.WriteAt(bytes.Repeat([]byte("x"), 1<<20), 0)
		must(t, err)
		must(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4096, 8192))
		b := make([]byte, 16384)
		_, err = f.ReadAt(b, 0)
		must(t, err)
		want := slices.Concat(bytes.Repeat([]byte("x"), 4096), make([]byte, 8192), bytes.Repeat([]byte("x"), 4096))
		if !bytes.Equal(b, want) {
			t.Error("the hole is not where it was punched")
		}
		err = unix.Fallocate(fd, unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096)
		wantErr(t, "collapse", err, unix.EOPNOTSUPP)
	})
}

func TestCopyFileRange(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		must(t, os.WriteFile(m.on("a"), data, 0o644))
		from, err := os.Open(m.in("a"))
		must(t, err)
		defer from.Close()
		to, err := os.Create(m.in("b"))
		must(t, err)
		defer to.Close()
		off := int64(0)
		for off < int64(len(data)) {
			n, err := unix.CopyFileRange(int(from.Fd()), &off, int(to.Fd()), nil, len(data), 0)
			must(t, err)
			if n == 0 {
				t.Fatal("it ends early")
			}
		}
		if got, _ := os.ReadFile(m.on("b")); !bytes.Equal(got, data) {
			t.Errorf("%d bytes that differ", len(got))
		}
		if got, _ := os.ReadFile(m.in("b")); !bytes.Equal(got, data) {
			t.Errorf("in the guest %d bytes that differ", len(got))
		}
	})
}

func TestXattr(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		write1(t, m.in("a"), "")
		must(t, unix.Setxattr(m.in("a"), "user.colour", []byte("blue"), unix.XATTR_CREATE))
		wantErr(t, "XATTR_CREATE again", unix.Setxattr(m.in("a"), "user.colour", []byte("red"), unix.XATTR_CREATE), unix.EEXIST)
		must(t, unix.Setxattr(m.in("a"), "user.empty", nil, 0))
		b := make([]byte, 100)
		n, err := unix.Getxattr(m.in("a"), "user.colour", b)
		if err != nil || string(b[:n]) != "blue" {
			t.Errorf("%q, %v", b[:max(n, 0)], err)
		}
		n, err = unix.Listxattr(m.in("a"), b)
		if err != nil || !strings.Contains(string(b[:n]), "user.colour\x00") || !strings.Contains(string(b[:n]), "user.empty\x00") {
			t.Errorf("list: %q, %v", b[:max(n, 0)], err)
		}
		n, err = unix.Getxattr(m.on("a"), "user.colour", b)
		if err != nil || string(b[:n]) != "blue" {
			t.Errorf("on the host: %q, %v", b[:max(n, 0)], err)
		}
		must(t, unix.Removexattr(m.in("a"), "user.colour"))
		_, err = unix.Getxattr(m.in("a"), "user.colour", b)
		wantErr(t, "removed", err, unix.ENODATA)
		for _, name := range []string{"security.capability", "trusted.x", "system.posix_acl_access", "security.selinux"} {
			if err := unix.Setxattr(m.in("a"), name, []byte("x"), 0); err == nil {
				t.Errorf("%s can be set", name)
			}
			if _, err := unix.Getxattr(m.on("a"), name, b); err == nil {
				t.Errorf("%s is on the host's file", name)
			}
		}
	})
}

func TestSpecialFiles(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		wantErr(t, "a device", unix.Mknod(m.in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.EPERM)
		wantErr(t, "a disk", unix.Mknod(m.in("disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))), unix.EPERM)
		must(t, unix.Mknod(m.in("plain"), unix.S_IFREG|0o600, 0))
		out := sh(t, m.guest, "mkfifo p; (echo through >p &) ; cat p; stat -c %F p")
		if out != "through\nfifo\n" {
			t.Errorf("%q", out)
		}
		sh(t, m.guest, `python3 -c '
import socket
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("sock"); c.send(b"x"); assert s.accept()[0].recv(1) == b"x"'`)
		if st, err := os.Lstat(m.on("sock")); err != nil || st.Mode().Type() != os.ModeSocket {
			t.Errorf("the socket is %v, %v", st, err)
		}
		sh(t, m.guest, "rm p sock plain; test -z \"$(ls -A)\"")
	})
}

func TestStatfs(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		var in, on unix.Statfs_t
		must(t, unix.Statfs(m.guest, &in))
		must(t, unix.Statfs(m.host, &on))
		if in.Blocks != on.Blocks || in.Bsize != on.Bsize || in.Files != on.Files || in.Namelen != 255 {
			t.Errorf("%+v, on the host %+v", in, on)
		}
	})
}

func TestNamesAndDepth(t *testing.T) {
	servers(t, exportSpec{}, func(t *testing.T, m *mounted) {
		for _, name := range []string{strings.Repeat("n", 255), "new\nline", "esc\x1b[2J", "not\xff\xfeutf8", " ", "*", "日本"} {
			write1(t, m.in(name), name)
			if got := read1(t, m.on(name)); got != name {
				t.Errorf("%q holds %q", name, got)
			}
		}
		_, err := os.Create(m.in(strings.Repeat("n", 256)))
		wantErr(t, "a long name", err, unix.ENAMETOOLONG)
		// Deeper than a path can say: 60 directories of 100 bytes.
		sh(t, m.guest, `python3 -c '
import os
for i in range(60):
    os.mkdir("d" * 100); os.chdir("d" * 100)
open("deep", "w").write("down"); os.rename("deep", "deeper"); assert open("deeper").read() == "down"
assert os.listdir(".") == ["deeper"]'`)
		sh(t, m.host, `python3 -c '
import os
for i in range(60): os.chdir("d" * 100)
assert open("deeper").read() == "down"'`)
		must(t, os.RemoveAll(filepath.Join(m.guest, strings.Repeat("d", 100))))
	})
}
