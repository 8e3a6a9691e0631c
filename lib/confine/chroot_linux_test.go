package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// In a chroot no user namespace can be made, the root cannot be exchanged, and
// what is mounted could appear on the host, whose mounts are shared on most. All
// the same the old root is out of reach, and nothing appears.
func TestChroot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: only root makes a chroot")
	}
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"CONFINE_CHROOT=" + dir}
	// Where the host's mounts are played: in a namespace of its own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// inChroot makes a chroot on a shared mount, confines a child in it and looks at
// what it did. It says what is wrong.
func inChroot(dir string) error {
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", dir, "tmpfs", 0, ""),
		unix.Mount("", dir, "", unix.MS_SHARED, ""),
	); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"/proc", "/usr", "/lib", "/lib64"} { // what the test binary itself is made of
		if _, err := os.Stat(d); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := errors.Join(os.MkdirAll(root+d, 0o755), unix.Mount(d, root+d, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	for _, f := range []string{"/mine/file", "/home/secret", "/mine/dir/x"} {
		if err := errors.Join(os.MkdirAll(root+filepath.Dir(f), 0o755), os.WriteFile(root+f, []byte("content"), 0o600)); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !strings.Contains(string(before), " "+dir+" rw,relatime shared:") {
		return fmt.Errorf("prepare: the mount is not shared (%v)\n%s", err, before)
	}
	tk := task{View: View{Read: []string{"/mine/file", "/proc/self/fd"}, Write: []string{"/mine/dir"}},
		World: world{Secret: "/home/secret", Mine: "/mine/file", MineToWrite: "/mine/dir"}}
	for act, layers := range map[string][]string{"works": nil, "does not": {"namespaces", "capabilities"}} {
		tk.Layers, tk.Acts = layers, []string{"secret", "own file", "own dir"}
		r, err := tk.runIn(root)
		if err != nil {
			return err
		}
		if (r.Failed["secret"] == "") != (act == "works") || r.Failed["own file"]+r.Failed["own dir"] != "" {
			fmt.Printf("%v: %q\n", layers, r.Failed)
		}
		if after, _ := os.ReadFile("/proc/self/mountinfo"); string(after) != string(before) {
			fmt.Printf("%v: the mounts were\n%s and are\n%s", layers, before, after)
		}
	}
	return nil
}

// runIn runs the task in a chroot, in the namespaces that can be made there.
func (t task) runIn(root string) (r result, err error) {
	text, err := json.Marshal(t)
	if err != nil {
		return r, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Dir = []string{"CONFINE_TASK=" + string(text)}, "/"
	cmd.SysProcAttr = Apart(Plain, false)
	cmd.SysProcAttr.Chroot = root
	cmd.Stderr = os.Stderr
	runtime.LockOSThread() // it ends with the thread that starts it
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}
