//go:build linux

package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/sb-vm/guest/fuse"
)

// The kernel of this machine is the guest: the relay runs as a process that
// mounts on /dev/fuse here, the server as another, a socket pair between them.
// Both are this test binary, told apart by roleEnv.
const (
	roleEnv   = "SHARE_TEST_ROLE"
	exportEnv = "SHARE_TEST_EXPORT"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "relay":
		say.Main("share-relay", fuse.Main)
	case "server":
		say.Main("share-server", serverMain)
	}
	os.Exit(m.Run())
}

// exportSpec is an Export that can be handed to a process.
type exportSpec struct {
	Dir               string
	ReadOnly          bool
	Hidden, Protected []string
	HiddenInodes      []Inode
	GuestUID          uint32
	GuestGID          uint32
	UID               uint32 // whom the server runs as
	Confine           bool   // under Landlock
	Counts            string // where to write what was asked, on SIGUSR1
	Watches, Nodes    int    // limits, if not 0; -1 is none
	Ruled             int    // another one, if not 0
	Fold              string // how names take several spellings, if not ""
	Shadowed          []string
	Store             string // a directory, if not ""
}

func (e exportSpec) open() (Export, error) {
	n, err := unix.Open(e.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	var store *os.File
	if e.Store != "" && err == nil {
		store, err = os.OpenFile(e.Store, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	return Export{
		Root: os.NewFile(uintptr(n), e.Dir), ReadOnly: e.ReadOnly, Hidden: e.Hidden, Protected: e.Protected,
		HiddenInodes: e.HiddenInodes, GuestUID: e.GuestUID, GuestGID: e.GuestGID, Shadowed: e.Shadowed, Store: store,
	}, err
}

// serverMain serves on descriptor 3 and says on stdout how it ended.
func serverMain([]string) error {
	var spec exportSpec
	if err := json.Unmarshal([]byte(os.Getenv(exportEnv)), &spec); err != nil {
		return err
	}
	e, err := spec.open()
	if err != nil {
		return err
	}
	conn, err := fd.Take("share", 3, fd.Stream)
	if err != nil {
		return err
	}
	if spec.Confine {
		if err := confineTo(int(e.Root.Fd())); err != nil {
			return err
		}
	}
	if spec.Counts != "" {
		if conn, err = counted(conn, spec.Counts); err != nil {
			return err
		}
	}
	if spec.Fold != "" {
		if conn, err = folding(conn, spec.Fold); err != nil {
			return err
		}
	}
	before := openDescriptors()
	err = spec.serve(context.Background(), conn, e)
	if left := openDescriptors() - (before - 1); left != 0 {
		err = errors.Join(err, fmt.Errorf("%d descriptors are left open", left))
	}
	return err
}

// serve is Serve with limits of the test's.
func (e exportSpec) serve(ctx context.Context, conn *os.File, exp Export) error {
	if e.Watches == 0 && e.Nodes == 0 && e.Ruled == 0 {
		return Serve(ctx, conn, exp)
	}
	x, err := newExport(exp)
	if err != nil {
		return err
	}
	defer x.close()
	if e.Watches != 0 {
		x.limits.watches = max(e.Watches, 0)
	}
	if e.Nodes != 0 {
		x.limits.nodes = e.Nodes
	}
	if e.Ruled != 0 {
		x.limits.ruled = e.Ruled
	}
	defer runtime.KeepAlive(exp.Root)
	return x.serve(ctx, conn)
}

func openDescriptors() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// mounted is a share that this machine's kernel has mounted.
type mounted struct {
	host  string // the directory that is served
	guest string // where it is mounted
	relay *exec.Cmd
	serve *exec.Cmd
	wait  func() error // for the server to end
}

// mount serves spec and mounts it; the test fails if the server ends badly.
func mount(t *testing.T, spec exportSpec, relayFlags ...string) *mounted {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounting on /dev/fuse takes root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("SKIPPED: no /dev/fuse here: ", err)
	}
	if spec.Dir == "" {
		spec.Dir = t.TempDir()
	}
	if spec.UID != 0 {
		allow(t, spec.Dir, int(spec.UID))
	}
	near, far, err := fd.Pair("share", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	m := &mounted{host: spec.Dir, guest: t.TempDir()}
	m.serve, m.wait = startServer(t, spec, far)
	m.startRelay(t, near, relayFlags)
	t.Cleanup(func() {
		unix.Unmount(m.guest, unix.MNT_DETACH)
		m.relay.Process.Kill()
		m.relay.Wait()
		if err := m.wait(); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	})
	return m
}

// allow gives dir to uid, and lets it pass through the directories above.
func allow(t *testing.T, dir string, uid int) {
	t.Helper()
	passable(t, dir)
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
}

// passable lets everybody pass through the test's own directories above dir.
func passable(t *testing.T, dir string) {
	t.Helper()
	for at := filepath.Dir(dir); at != filepath.Clean(os.TempDir()) && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func startServer(t *testing.T, spec exportSpec, conn *os.File) (cmd *exec.Cmd, wait func() error) {
	t.Helper()
	env, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=server", exportEnv+"="+string(env))
	cmd.ExtraFiles = []*os.File{conn}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if spec.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: spec.UID, Gid: spec.UID}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	return cmd, func() error {
		timeout := time.AfterFunc(20*time.Second, func() { cmd.Process.Signal(unix.SIGQUIT) })
		defer timeout.Stop()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, stderr.String())
		}
		return nil
	}
}

func (m *mounted) startRelay(t *testing.T, conn *os.File, flags []string) {
	t.Helper()
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.relay = exec.Command("/proc/self/exe", append(flags, "--port=3", "--ready=4", m.guest)...)
	m.relay.Env = append(os.Environ(), roleEnv+"=relay")
	m.relay.ExtraFiles = []*os.File{conn, readyEnd}
	m.relay.Stderr = os.Stderr
	if err := m.relay.Start(); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	readyEnd.Close()
	if err := fd.WaitReady(ready, say.Version); err != nil {
		t.Fatalf("the relay did not get ready: %v", err)
	}
	ready.Close()
}

// in is a path in the guest, on the path on the host.
func (m *mounted) in(name string) string { return filepath.Join(m.guest, name) }
func (m *mounted) on(name string) string { return filepath.Join(m.host, name) }

// sh runs a script in dir and returns what it wrote.
func sh(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in %s: %s\n%v\n%s", dir, script, err, out)
	}
	return string(out)
}

// agent is sh as the guest's ordinary user.
func agent(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	passable(t, dir)
	script = "setpriv --reuid=1000 --regid=1000 --clear-groups sh -euc '" + strings.ReplaceAll(script, "'", `'\''`) + "'"
	return sh(t, dir, script, env...)
}

func write1(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read1(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// within waits until ok holds, no longer than a second: what the host changes
// must be seen by then.
func within(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	return wait(t, time.Second, what, ok)
}

// soon waits for what has no promise.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	wait(t, 20*time.Second, what, ok)
}

func wait(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			t.Fatalf("%s: not so after %v", what, limit)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}
