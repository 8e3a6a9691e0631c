//go:build linux

package share

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/lib/fd"
)

// When the server is gone, who uses the mount is told so at once.
func TestServerDies(t *testing.T) {
	m := mount(t, exportSpec{})
	write1(t, m.on("f"), "text")
	f, err := os.Open(m.in("f"))
	must(t, err)
	defer f.Close()
	if got := read1(t, m.in("f")); got != "text" {
		t.Fatalf("control: %q", got)
	}
	must(t, m.serve.Process.Signal(unix.SIGSTOP))
	waiting := make(chan error, 1)
	go func() { _, err := os.Stat(m.in("absent")); waiting <- err }()
	select {
	case err := <-waiting:
		t.Errorf("control: answered by a server that is stopped: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	must(t, m.serve.Process.Kill())
	m.wait()
	m.wait = func() error { return nil }
	select {
	case err := <-waiting:
		if err == nil || errors.Is(err, unix.ENOENT) {
			t.Errorf("who waited got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("who waits goes on waiting")
	}
	if err := m.relay.Wait(); err != nil {
		t.Errorf("the relay ended with %v", err)
	}
	_, err = os.Stat(m.in("f"))
	wantErr(t, "stat", err, unix.ENOTCONN)
	_, err = f.Stat()
	wantErr(t, "fstat of an open file", err, unix.ENOTCONN)
}

// A share that was unmounted can be mounted again on the same stream.
func TestMountedAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounting on /dev/fuse takes root")
	}
	near, far, err := fd.Pair("share", fd.Stream)
	must(t, err)
	defer near.Close()
	m := &mounted{host: t.TempDir(), guest: t.TempDir()}
	m.serve, m.wait = startServer(t, exportSpec{Dir: m.host}, far)
	write1(t, m.on("f"), "text")
	for range 3 {
		n, err := unix.FcntlInt(near.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		m.startRelay(t, os.NewFile(uintptr(n), "share"), nil)
		sh(t, m.guest, "test $(cat f) = text; echo x >g; rm g")
		must(t, unix.Unmount(m.guest, 0))
		if err := m.relay.Wait(); err != nil {
			t.Errorf("the relay of an unmounted share ended with %v", err)
		}
	}
	near.Close()
	if err := m.wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestMountOptions(t *testing.T) {
	m := mount(t, exportSpec{}, "--read-only", "--source=work")
	write1(t, m.on("f"), "text")
	wantErr(t, "a write", os.WriteFile(m.in("f"), nil, 0o644), unix.EROFS)
	var st unix.Statfs_t
	must(t, unix.Statfs(m.guest, &st))
	if want := int64(unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV); st.Flags&want != want {
		t.Errorf("mounted with %#x", st.Flags)
	}
}
