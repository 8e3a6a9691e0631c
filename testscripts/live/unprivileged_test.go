package live

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUnprivileged: a profile's command is an ordinary user's, with uid 1000, who can
// become root; what either makes in the workspace is the host user's.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	k := newKind(t, "")
	r := k.run(`
echo "== who"; id -u; id -un; echo "$HOME $USER"; pwd
echo "== refused"; touch /etc/made 2>&1; cat /etc/shadow 2>&1 >/dev/null; mount -t tmpfs t /mnt 2>&1
echo "== sudo"; sudo -n id -u; sudo -n touch /etc/made && stat -c %u /etc/made
echo "== share"; echo a >mine; sudo -n sh -c 'echo r >roots; echo more >>mine'; stat -c '%U' mine; cat mine roots
echo "== end"`, "-w", k.work)
	r.ok(t)
	image := run(t, box{script: `echo "== who"; id -u; touch /etc/made && stat -c %u /etc/made; echo "== end"`})
	image.ok(t)
	t.Run("uid 1000", func(t *testing.T) {
		claim(t, "80")
		r.says(t, "who", `^1000\nagent\n/home/agent agent\n`+k.work+`$`)
		if got := r.section("refused"); strings.Count(got, "ermission denied")+strings.Count(got, "must be superuser") != 3 {
			t.Errorf("an ordinary user does: %q", got)
		}
		image.says(t, "who", `^0\n0$`) // control: an image's own user is root
	})
	t.Run("sudo without a password", func(t *testing.T) {
		claim(t, "81")
		r.says(t, "sudo", `^0\n0$`)
	})
	t.Run("what is made is the host user's", func(t *testing.T) {
		claim(t, "80", "61")
		r.says(t, "share", `^agent\na\nmore\nr$`)
		for _, name := range []string{"mine", "roots"} {
			st, err := os.Stat(filepath.Join(k.work, name))
			if err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
				t.Errorf("%s: %v, %v", name, st, err)
			}
		}
	})
}

// TestUnpublished: what listens inside is up there and nowhere on the host.
func TestUnpublished(t *testing.T) {
	t.Parallel()
	dir := workspace(t)
	s := start(t, box{flags: []string{"-w", dir}, script: `
node -e "const h = (q, s) => s.end('inside'); require('http').createServer(h).listen(8099, '0.0.0.0'); require('net').createServer(c => c.end('inside')).listen('socket')" &
for a in 127.0.0.1 198.18.0.2; do until curl -sS --max-time 5 http://$a:8099/; do sleep 0.2; done; done; until test -S socket; do sleep 0.2; done
echo; echo up; wait`})
	t.Run("it is up inside", func(t *testing.T) {
		claim(t, "113")
		if !strings.Contains(s.out.String(), "insideinside\nup\n") {
			t.Errorf("%q", s.out)
		}
	})
	t.Run("it is nowhere on the host", func(t *testing.T) {
		claim(t, "112", "54", "55")
		control, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		defer control.Close()
		port := strconv.Itoa(control.Addr().(*net.TCPAddr).Port)
		addresses, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		hosts := []string{"198.18.0.1", "198.18.0.2", "::1"}
		for _, a := range addresses {
			if ip := a.(*net.IPNet).IP; ip.To4() != nil {
				hosts = append(hosts, ip.String())
				dials(t, "tcp", net.JoinHostPort(ip.String(), port), true)
			}
		}
		for _, h := range hosts {
			dials(t, "tcp", net.JoinHostPort(h, "8099"), false)
		}
		// The socket's name is in the workspace; who listens is in another kernel.
		own := filepath.Join(t.TempDir(), "socket")
		l, err := net.Listen("unix", own)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dials(t, "unix", own, true)
		if st, err := os.Stat(filepath.Join(dir, "socket")); err != nil || st.Mode()&os.ModeSocket == 0 {
			t.Errorf("socket: %v, %v", st, err)
		}
		link := filepath.Join(t.TempDir(), "short") // a socket's path is bounded
		os.Symlink(filepath.Join(dir, "socket"), link)
		dials(t, "unix", link, false)
	})
}

func dials(t *testing.T, network, address string, want bool) {
	t.Helper()
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err == nil {
		c.Close()
	}
	if (err == nil) != want {
		t.Errorf("%s %s: %v", network, address, err)
	}
}

// TestReadOnlyFileSystem: a workspace that nobody can write is shared as it is; the
// same on one that can be written is written.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	claim(t, "bad-input", "read-only")
	dir := t.TempDir()
	for _, c := range [][]string{{"mount", "-t", "tmpfs", "tmpfs", dir}, {"git", "-C", dir, "init", "-q"}, {"sh", "-c", "mkdir " + dir + "/own; echo host >" + dir + "/file"}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", c, err, out)
		}
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	for _, mode := range []string{"rw", "ro"} {
		if out, err := exec.Command("mount", "-o", "remount,"+mode, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		r := run(t, box{flags: []string{"-w", dir, "--undo", "--private", "own"}, script: guestGit + `
echo "== read"; cat file; git status --porcelain | head -1
echo "== write"; echo x 2>&1 >new && echo written; mkdir d 2>&1 && echo made; rm new 2>&1 && echo removed
echo "== own"; echo x >own/x && cat own/x
echo "== end"`})
		r.ok(t)
		r.says(t, "read", `^host\n`)
		r.says(t, "own", `^x$`)
		if got := r.section("write"); (mode == "rw") != (got == "written\nmade\nremoved") || mode == "ro" && !strings.Contains(got, "Read-only file system") {
			t.Errorf("%s: %q\n%s", mode, got, r.stderr)
		}
		if !strings.Contains(r.stderr, "recorded "+dir) {
			t.Errorf("%s: %s", mode, r.stderr)
		}
	}
	r := run(t, box{flags: []string{"-w", dir, "--private", "none"}, script: "echo inside"})
	if r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "none: read-only file system") {
		t.Errorf("a private directory that cannot be made: exit code %d, %q, %s", r.code, r.stdout, r.stderr)
	}
}
