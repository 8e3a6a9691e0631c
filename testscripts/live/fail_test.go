package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listening starts a sandbox whose guest runs the lines that are written to it.
func listening(t *testing.T, env []string, state string) (*started, func(string)) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	s := startIn(t, box{flags: []string{"--allow", "allowed.example.org"}, stdin: r, script: `echo up; while read -r line; do eval "$line"; done`}, env, state)
	return s, func(line string) { fmt.Fprintln(w, line) }
}

// TestFailVM: a machine or its sb-vm that is stopped, or has no more memory or
// descriptors, is no way out and can be ended; one that is killed ends the run. Nothing of it is left.
func TestFailVM(t *testing.T) {
	t.Parallel()
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		claim(t, "fail-closed")
		env, state := homes(t)
		s, do := listening(t, env, state)
		for _, tool := range []string{"sb-vm", "qemu-system-x86_64"} { // neither needs another
			starve(t, s.pidOf(tool), unix.RLIMIT_NOFILE, openFiles(s.pidOf(tool)))
		}
		do("curl -sS --max-time 20 http://allowed.example.org/starved")
		s.until("a page", func() bool { return strings.Contains(s.out.String(), "GET /starved") })
		syscall.Kill(s.pidOf("sb-vm"), syscall.SIGSTOP)
		do("curl -sS --max-time 20 http://allowed.example.org/still")
		s.until("a page", func() bool { return strings.Contains(s.out.String(), "GET /still") })
		syscall.Kill(s.pidOf("qemu-system-x86_64"), syscall.SIGSTOP)
		s.cmd.Process.Signal(syscall.SIGTERM)
		if code := s.wait(20 * time.Second); code != 143 {
			t.Errorf("exit code %d", code)
		}
		s.gone(t)
		(&result{t: t, audit: readAudit(t, state)}).logs(t, `close tcp allowed\.example\.org 45\.67\.0\.10:80 done `)
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		claim(t, "fail-closed", "machine-dies")
		env, state := homes(t)
		s, _ := listening(t, env, state)
		syscall.Kill(s.pidOf("sb-vm"), syscall.SIGKILL)
		if code := s.wait(20 * time.Second); code != 125 || !strings.Contains(s.errs.String(), "sb-vm ended: signal: killed") {
			t.Errorf("exit code %d, stderr:\n%s", code, s.errs)
		}
		s.gone(t)
		leftNothing(t, state)
	})
	t.Run("starved of memory", func(t *testing.T) {
		t.Parallel()
		claim(t, "fail-closed")
		env, state := homes(t)
		s, do := listening(t, env, state)
		for _, tool := range []string{"sb-vm", "qemu-system-x86_64"} {
			starve(t, s.pidOf(tool), unix.RLIMIT_AS, 0)
			starve(t, s.pidOf(tool), unix.RLIMIT_DATA, 0)
		}
		do("for n in 1 2 3 4; do curl -sS --max-time 20 -o /dev/null http://allowed.example.org/?size=9000000; done; probe tcp 45.67.0.30:80")
		// It goes on with what it has, or it ends and takes the run with it.
		ended := func() bool {
			select {
			case <-s.ended:
				return true
			default:
				return false
			}
		}
		s.until("an end of one kind", func() bool { return ended() || strings.Contains(s.out.String(), "refused") })
		want := 125
		if !ended() {
			want = 143
			s.cmd.Process.Signal(syscall.SIGTERM)
		}
		if code := s.wait(20 * time.Second); code != want {
			t.Errorf("exit code %d, want %d", code, want)
		}
		t.Logf("exit code %d", want)
		s.gone(t)
		leftNothing(t, state)
	})
}

// starve lets a process that runs have so much of a resource and no more.
func starve(t *testing.T, pid, what int, most uint64) {
	t.Helper()
	if err := unix.Prlimit(pid, what, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
		t.Fatal(err)
	}
}

// openFiles is above the descriptors that a process has. With a lower limit poll(2)
// would fail on those.
func openFiles(pid int) (above uint64) {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, f := range fds {
		if n, err := strconv.ParseUint(f.Name(), 10, 64); err == nil {
			above = max(above, n+1)
		}
	}
	return above
}

// TestDiskFills: where the host's disk is full the guest's writes fail and the
// machine goes on; nothing new is let out while the log cannot be written, and
// it all goes on when there is room.
func TestDiskFills(t *testing.T) {
	t.Parallel()
	claim(t, "fail-closed", "full-disk")
	env, state := homes(t)
	dir := filepath.Dir(state)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	s, do := listening(t, env, state)
	do("curl -sS --max-time 20 http://allowed.example.org/before")
	s.until("the control", func() bool { return strings.Contains(s.out.String(), "GET /before") })
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	do(`dd if=/dev/zero of=/big bs=1M count=16 conv=fsync 2>&1; echo "wrote $?"`)
	s.until("the guest's write", func() bool { return strings.Contains(s.out.String(), "wrote ") })
	if out := s.out.String(); !strings.Contains(out, "rror\n") || !strings.Contains(out, "wrote 1\n") {
		t.Errorf("the guest was not told that its write failed: %q", out)
	}
	do(`for n in 1 2 3 4 5 6 7 8 9; do probe tcp 45.67.0.$n:80; done; until probe tcp allowed.example.org:80 | grep refused; do :; done`)
	s.until("a refusal", func() bool { return strings.Count(s.out.String(), "refused") > 9 })
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	do("until curl -sS --max-time 20 http://allowed.example.org/after; do sleep 1; done")
	s.until("a page after", func() bool { return strings.Contains(s.out.String(), "GET /after") })
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.wait(20 * time.Second)
	s.gone(t)
	res := &result{t: t, audit: readAudit(t, state)}
	res.logs(t, `deny tcp allowed\.example\.org \S+ audit-unavailable`)
	res.logsNot(t, `gate-died`)
}

// fill writes a file, a page at a time, until there is no room for another.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, os.Getpagesize()); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
