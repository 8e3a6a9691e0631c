package confine

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// newWorld makes everything that there is to reach, and the view of a child that
// may see only its own files.
func newWorld(t *testing.T) (world, View) {
	t.Helper()
	dir := t.TempDir()
	w := world{Secret: filepath.Join(dir, "home", ".ssh", "id_test"), Mine: filepath.Join(dir, "mine", "file"),
		MineToWrite: filepath.Join(dir, "mine", "dir"), Unix: filepath.Join(dir, "socket"), Abstract: "@" + dir}
	for _, file := range []string{w.Secret, w.Mine, filepath.Join(w.MineToWrite, "x")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tcp := listen(t, "tcp", "127.0.0.1:0")
	w.TCP = tcp.Addr().String()
	listen(t, "unix", w.Unix)
	listen(t, "unix", w.Abstract)
	w.Victim = victim(t)
	return w, View{Read: []string{w.Mine}, Write: []string{w.MineToWrite}}
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// victim is a process of the same user.
func victim(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"CONFINE_VICTIM=1"}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	return cmd.Process.Pid
}

// TestLayers: nothing that is forbidden works with all layers on, all of it works
// with none, and each layer alone stops what it is there for. So no layer can
// fall out and leave its work to another unseen.
func TestLayers(t *testing.T) {
	w, view := newWorld(t)
	for _, c := range []struct {
		name   string
		level  Namespaces
		layers []string
		denied []string
	}{
		{"none", None, nil, nil},
		{"namespaces", Full, []string{"namespaces"}, []string{"tcp", "udp", "unix", "abstract", "secret", "create", "exec", "ptrace"}},
		{"landlock", None, []string{"landlock"}, []string{"tcp", "abstract", "secret", "create", "exec", "ptrace", "signal", "mount"}},
		{"seccomp", None, []string{"seccomp"}, []string{"tcp", "udp", "unix", "abstract", "exec", "ptrace", "mount"}},
		{"capabilities", None, []string{"capabilities"}, []string{"mount"}},
		{"all", Full, []string{"namespaces", "capabilities", "landlock", "seccomp"}, forbidden},
		{"all but namespaces", None, []string{"capabilities", "landlock", "seccomp"}, forbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "all" && withCgo() {
				t.Skip("SKIP: built with cgo, as the tools never are: Landlock's library then needs /proc (set CGO_ENABLED=0)")
			}
			r := task{Layers: c.layers, View: view, Acts: append(slices.Clone(forbidden), "own file", "own dir", "wire"), World: w}.try(t, c.level)
			if len(r.Lacks) > 0 {
				t.Skipf("SKIP: this host's kernel lacks %s", strings.Join(r.Lacks, ", "))
			}
			for _, act := range c.denied {
				if r.Failed[act] == "" {
					t.Errorf("%s works", act)
				}
			}
			for _, act := range []string{"own file", "own dir", "wire"} {
				if r.Failed[act] != "" {
					t.Errorf("%s does not work: %s", act, r.Failed[act])
				}
			}
			if c.layers == nil {
				for _, act := range forbidden {
					if r.Failed[act] != "" {
						t.Errorf("control: %s does not work: %s", act, r.Failed[act])
					}
				}
			}
		})
	}
}

func withCgo() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"})
}

// A view gives what it names: files to start where starting is on, ports to
// connect to, and no more than that.
func TestView(t *testing.T) {
	w, view := newWorld(t)
	program, err := filepath.EvalSymlinks("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	runs := View{Read: []string{w.Mine}, Exec: []string{program}}
	for _, path := range []string{"/usr/lib", "/lib", "/lib64", "/bin", "/etc/ld.so.cache"} {
		if _, err := os.Stat(path); err == nil {
			runs.Exec = append(runs.Exec, path) // the loader is one
		}
	}
	dials := view
	dials.Dial = true
	for _, c := range []struct {
		name   string
		layers []string
		view   View
		allows string
	}{
		{"a program", []string{"landlock", "exec-on"}, runs, "exec"},
		{"a program, but none may be started", []string{"landlock", "seccomp"}, runs, ""},
		{"ports", []string{"landlock"}, dials, "tcp"},
	} {
		r := task{Layers: c.layers, View: c.view, Acts: []string{"tcp", "exec", "secret", "create", "abstract", "signal"}, World: w}.try(t, None)
		if len(r.Lacks) > 0 {
			t.Skipf("SKIP: this host's kernel lacks %s", strings.Join(r.Lacks, ", "))
		}
		for act, failed := range r.Failed {
			if (failed == "") != (act == c.allows) {
				t.Errorf("%s: %s: %q", c.name, act, failed)
			}
		}
	}
}

// A call by another architecture's numbers, by which all of those refused could
// be made, ends the process.
func TestForeignCalls(t *testing.T) {
	for _, act := range []string{"i386", "x32"} {
		r, err := task{Acts: []string{act}}.run(t, None, false)
		if err != nil || r.Failed[act] != "" {
			t.Logf("SKIP: this host's processor or kernel has no %s calls: %v %s", act, err, r.Failed[act])
			continue
		}
		for _, layer := range []string{"seccomp", "exec-on"} {
			r, err := task{Layers: []string{layer}, Acts: []string{act}}.run(t, None, false)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
				t.Errorf("%s, %s: the process lives: %v, %v", layer, act, r, err)
			}
		}
	}
}

// After DropCapabilities and an exec nothing is left, root or not: no capability,
// no way to one.
func TestDropCapabilities(t *testing.T) {
	status := func(drop bool) map[string]string {
		started := make(chan string)
		go func() {
			// Its thread is given up with its capabilities.
			runtime.LockOSThread()
			if drop {
				if err := DropCapabilities(); err != nil {
					t.Error(err)
				}
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{"CONFINE_STATUS=1"}
			out, err := cmd.Output()
			if err != nil {
				t.Error(err)
			}
			started <- string(out)
		}()
		fields := map[string]string{}
		for l := range strings.Lines(<-started) {
			k, v, _ := strings.Cut(strings.TrimSpace(l), ":\t")
			fields[k] = v
		}
		return fields
	}
	const none = "0000000000000000"
	before, after := status(false), status(true)
	root := os.Geteuid() == 0
	if (before["CapEff"] != none) != root || before["CapBnd"] == none {
		t.Errorf("control: without it CapEff is %s, CapBnd %s", before["CapEff"], before["CapBnd"])
	}
	for _, field := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if after[field] != none {
			t.Errorf("%s is %s", field, after[field])
		}
	}
	// Only who has CAP_SETPCAP can set these, and only he could use them.
	if root && (after["CapBnd"] != none || after["SecureBits"] != "0xc3" || before["SecureBits"] != "0x0") {
		t.Errorf("CapBnd is %s, the secure bits %s, and were %s", after["CapBnd"], after["SecureBits"], before["SecureBits"])
	}
}

// What a level lacks is said, and the best is tried first.
func TestLevels(t *testing.T) {
	levels := Levels()
	if levels[0] != Full || levels[len(levels)-1] != None || slices.Contains(levels, Plain) != (os.Geteuid() == 0) {
		t.Errorf("the levels are %v", levels)
	}
	for _, l := range levels {
		if (l.Lacks() == "") != (l == Full) {
			t.Errorf("level %d lacks %q", l, l.Lacks())
		}
	}
}

// Without a user namespace, root is as far from network and files.
func TestPlain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: the level is for root")
	}
	w, view := newWorld(t)
	r := task{Layers: []string{"namespaces"}, View: view, Acts: []string{"tcp", "udp", "unix", "abstract", "secret", "create", "exec", "own file", "own dir"}, World: w}.try(t, Plain)
	for act, failed := range r.Failed {
		if (failed == "") != strings.HasPrefix(act, "own ") {
			t.Errorf("%s: %q", act, failed)
		}
	}
}

// TestAsUser runs all of it again as an ordinary user.
func TestAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIP: already an ordinary user")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "confine-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	// The one that runs lies where only root can look.
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "confine.test")
	if err := os.WriteFile(program, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.v", "-test.run", "Layers|View|Foreign|Drop|Levels")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestLayers") {
		t.Errorf("%v\n%s", err, out)
	}
	for l := range strings.Lines(string(out)) {
		if strings.Contains(l, "SKIP") {
			t.Log(strings.TrimSpace(l))
		}
	}
}
