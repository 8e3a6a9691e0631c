//go:build linux

package share

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sb/lib/confine"
	"sb/lib/say"
)

// confineTo lets the server's process see nothing but the share and what the
// package says it needs.
func confineTo(root int) error {
	view := confine.View{
		Read:  []string{"/proc/self/fd", "/proc/sys/fs/inotify/max_user_watches"},
		Write: []string{fmt.Sprintf("/proc/self/fd/%d", root)},
	}
	files, err := confine.Files(view)
	if err != nil {
		return err
	}
	calls, err := confine.Calls(false, false)
	if err != nil {
		return err
	}
	if files+calls != "" {
		say.Note("not confined by: %s %s", files, calls)
	}
	// Control: what is not in the view cannot be opened.
	if f, err := os.Open("/etc/passwd"); err == nil && files == "" {
		f.Close()
		return fmt.Errorf("the confined server opened /etc/passwd")
	}
	return nil
}

// TestConfined does everything once with a server that is confined as sb-vm
// confines it.
func TestConfined(t *testing.T) {
	for _, uid := range []uint32{0, ordinary} {
		t.Run(fmt.Sprint("uid", uid), func(t *testing.T) {
			m := mount(t, exportSpec{UID: uid, GuestUID: 1000, GuestGID: 1000, Confine: true})
			out := sh(t, m.guest, `
				mkdir -p a/b c; echo 1 >a/b/f; echo 2 >>a/b/f; cat a/b/f; mv a/b/f c/g; ln c/g a/h; ln -s h a/s; cat a/s
				mv a/b c/; mkfifo p; chmod 640 c/g; touch -d @7 c/g; stat -c '%a %Y' c/g; truncate -s 3 c/g; cp -r c d; cat d/g
				ls -R | wc -l; setfattr -n user.x -v y c/g 2>/dev/null || true; python3 -c '
import os
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600); os.write(fd, b"tmp"); os.link("/proc/self/fd/%d" % fd, "t", src_dir_fd=fd)
os.posix_fallocate(fd, 0, 9999); os.copy_file_range(os.open("t", os.O_RDONLY), os.open("u", os.O_CREAT | os.O_RDWR), 3)
print(open("u").read(), os.statvfs(".").f_namemax)'
				rm -r a c d p t; ls`)
			if !strings.HasPrefix(out, "1\n2\n1\n2\n640 7\n1\n") || !strings.HasSuffix(out, "tmp 255\nu\n") {
				t.Errorf("%q", out)
			}
			watches(t, m)
			var st unix.Stat_t
			must(t, unix.Stat(m.in("u"), &st))
		})
	}
}

// watches checks that changes are seen sooner than by asking again, which a busy
// machine may need more than one try for.
func watches(t *testing.T, m *mounted) {
	t.Helper()
	for i := range 5 {
		write1(t, m.on("h"), strings.Repeat("x", i))
		must(t, os.Chmod(m.on("h"), 0o644))
		settled(t, m.on("h"), m.host)
		for range 3 {
			size("h")(t, m.guest)
		}
		write1(t, m.on("h"), "longer than that")
		if within(t, "the change is seen", func() bool { return size("h")(t, m.guest) == "16" }) < shortTTL/2 {
			return
		}
	}
	t.Error("nothing is watched")
}
