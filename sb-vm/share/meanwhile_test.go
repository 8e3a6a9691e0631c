//go:build linux

package share

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What lies in a directory can be used while the directory is renamed.
func TestRenameWhileUsed(t *testing.T) {
	m := mount(t, exportSpec{})
	must(t, os.MkdirAll(m.in("a/in"), 0o755))
	write1(t, m.in("a/in/f"), "text")
	dir, err := unix.Open(m.in("a/in"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(dir)
	renames := make(chan error, 1)
	go func() {
		for i := range 1000 {
			names := []string{m.in("a"), m.in("b")}
			if err := os.Rename(names[i%2], names[1-i%2]); err != nil {
				renames <- err
				return
			}
		}
		renames <- nil
	}()
	used := 0
	for going := true; going; used++ {
		select {
		case err := <-renames:
			must(t, err)
			going = false
		default:
		}
		fd, err := unix.Openat(dir, "f", unix.O_RDWR, 0)
		if err != nil {
			t.Fatalf("open number %d: %v", used, err)
		}
		must(t, unix.Fchmod(fd, 0o600))
		unix.Close(fd)
	}
	t.Logf("used %d times", used)
}

// A directory that was removed and made anew can be worked in at any time after,
// whatever becomes of the events of the old one.
func TestMadeAnewAndUsed(t *testing.T) {
	m := mount(t, exportSpec{})
	for i := range 300 {
		must(t, os.RemoveAll(m.in("d")))
		must(t, os.Mkdir(m.in("d"), 0o755))
		dir, err := unix.Open(m.in("d"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		time.Sleep(time.Duration(i%10) * time.Millisecond)
		fd, err := unix.Openat(dir, "f", unix.O_RDWR|unix.O_CREAT, 0o644)
		if err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
		unix.Close(fd)
		unix.Close(dir)
	}
}

// A process that works in a directory which the host moves within the share goes
// on once the guest has seen the new name of what was moved.
func TestHostMovesWorkingDirectory(t *testing.T) {
	watching(t, hostMoves)
}

func hostMoves(t *testing.T, m *mounted) {
	must(t, os.MkdirAll(m.on("a/b/c"), 0o755))
	write1(t, m.on("a/b/c/f"), "text")
	dir, err := unix.Open(m.in("a/b/c"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(dir)
	use := func() error {
		fd, err := unix.Openat(dir, "f", unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	must(t, use())
	must(t, os.Rename(m.on("a"), m.on("z")))
	time.Sleep(trust + 100*time.Millisecond) // what was open is not trusted any longer
	for range 3 {
		if use() == nil {
			t.Error("it is found under a name that nobody has told")
		}
	}
	within(t, "the new name shows", func() bool { _, err := os.Stat(m.in("z")); return err == nil })
	must(t, use())
}

// A slow request must not keep others waiting: the share has another share
// mounted in it, whose server does not answer for a while.
func TestSlowHost(t *testing.T) {
	inner := mount(t, exportSpec{})
	outer := mount(t, exportSpec{Dir: filepath.Dir(inner.guest)})
	name := filepath.Base(inner.guest)
	write1(t, inner.on("f"), "inner")
	write1(t, outer.on("f"), "outer")
	if got := read1(t, outer.in(name+"/f")); got != "inner" {
		t.Fatalf("through both: %q", got)
	}
	must(t, inner.serve.Process.Signal(unix.SIGSTOP))
	hung := exec.Command("cat", outer.in(name+"/absent"))
	must(t, hung.Start())
	var waits sync.WaitGroup
	for i := range 20 {
		waits.Go(func() { os.Stat(outer.in(fmt.Sprintf("%s/no%d", name, i))) })
	}
	for i := range 50 {
		start := time.Now()
		write1(t, outer.in("g"), "other")
		if got := read1(t, outer.in("f")) + read1(t, outer.in("g")); got != "outerother" {
			t.Errorf("%q", got)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("turn %d took %v", i, d)
		}
	}
	// A process that waits for it can be killed.
	must(t, hung.Process.Kill())
	died := make(chan error, 1)
	go func() { died <- hung.Wait() }()
	select {
	case <-died:
	case <-time.After(3 * patience):
		t.Error("the process that waits cannot be killed")
	}
	must(t, inner.serve.Process.Signal(unix.SIGCONT))
	waits.Wait()
	if got := read1(t, outer.in(name+"/f")); got != "inner" {
		t.Errorf("afterwards: %q", got)
	}
}
