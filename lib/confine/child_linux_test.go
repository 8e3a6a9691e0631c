package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A task is what the test binary, started again as a child, takes on and then
// tries: each layer is put on by the package's own functions, in the order in
// which the tools do it.
type task struct {
	Layers []string // of: namespaces, capabilities, landlock, seccomp, exec-on (seccomp, but programs may be started)
	View   View
	Acts   []string
	World  world
}

// world is what there is to reach.
type world struct {
	TCP, Unix, Abstract string // addresses somebody listens on
	Secret              string // a file of the user's
	Mine, MineToWrite   string // a file and a directory of the child's own
	Victim              int    // a process
}

// A result says of each act how it failed; "" is that it worked.
type result struct {
	Failed map[string]string
	Lacks  []string
}

// acts are what an escaped program would do, and what a confined one must.
var acts = map[string]func(world) error{
	"tcp":      func(w world) error { return dial("tcp", w.TCP) },
	"udp":      func(w world) error { return send(w.TCP) },
	"unix":     func(w world) error { return dial("unix", w.Unix) },
	"abstract": func(w world) error { return dial("unix", w.Abstract) },
	"secret":   func(w world) error { return read(w.Secret) },
	"create":   func(w world) error { return create(filepath.Dir(w.Secret)) },
	"exec":     func(w world) error { return start("/bin/true") },
	"ptrace":   func(w world) error { return ptrace(w.Victim) },
	"signal":   func(w world) error { return unix.Kill(w.Victim, 0) },
	"mount":    func(w world) error { return unix.Mount("none", w.MineToWrite, "tmpfs", 0, "") },
	"own file": func(w world) error { return read(w.Mine) },
	"own dir":  func(w world) error { return create(w.MineToWrite) },
	"wire":     func(w world) error { _, err := os.NewFile(3, "wire").Write([]byte("x")); return err },
	"i386":     foreign32,
	"x32":      foreignX32,
}

// forbidden are the acts that a fully confined process can do none of.
var forbidden = []string{"tcp", "udp", "unix", "abstract", "secret", "create", "exec", "ptrace", "signal", "mount"}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

// send sends a datagram without connecting.
func send(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.Sendto(s, []byte("x"), 0, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
}

func read(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 0 {
		err = errors.New("empty")
	}
	return err
}

func create(dir string) error {
	return os.WriteFile(filepath.Join(dir, "made"), []byte("x"), 0o600)
}

// start starts a program that needs no files of its own.
func start(path string) error {
	p, err := os.StartProcess(path, []string{path}, &os.ProcAttr{})
	if err != nil {
		return err
	}
	st, err := p.Wait()
	if err == nil && !st.Success() {
		err = errors.New(st.String())
	}
	return err
}

// ptrace attaches to a process without stopping it; who attached lets go when it ends.
func ptrace(pid int) error {
	const seize = 0x4206 // linux/ptrace.h: PTRACE_SEIZE
	if _, _, errno := syscall.RawSyscall6(unix.SYS_PTRACE, seize, uintptr(pid), 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CONFINE_TASK") != "":
		if err := child(os.Getenv("CONFINE_TASK")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	case os.Getenv("CONFINE_CHROOT") != "":
		if err := inChroot(os.Getenv("CONFINE_CHROOT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	case os.Getenv("CONFINE_STATUS") != "":
		b, _ := os.ReadFile("/proc/self/status")
		os.Stdout.Write(b)
		bits, _ := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
		fmt.Printf("SecureBits:\t%#x\n", bits)
	case os.Getenv("CONFINE_VICTIM") != "":
		unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) // for a host with Yama
		fmt.Println("here")
		io.Copy(io.Discard, os.Stdin)
	default:
		os.Exit(m.Run())
	}
}

func child(text string) error {
	runtime.LockOSThread()
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	r := result{Failed: map[string]string{}}
	for _, layer := range t.Layers {
		lacks, err := t.put(layer)
		if err != nil {
			return fmt.Errorf("%s: %w", layer, err)
		}
		if lacks != "" {
			r.Lacks = append(r.Lacks, lacks)
		}
	}
	for _, act := range t.Acts {
		r.Failed[act] = ""
		if err := acts[act](t.World); err != nil {
			r.Failed[act] = err.Error()
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (t task) put(layer string) (lacks string, err error) {
	switch layer {
	case "namespaces":
		return "", NewRoot(t.View)
	case "capabilities":
		return "", DropCapabilities()
	case "landlock":
		return Files(t.View)
	case "seccomp":
		return Calls(false, false)
	case "exec-on":
		return Calls(false, true)
	}
	return "", errors.New("no such layer")
}

// run starts the child and returns what it did. level is the namespaces that it
// is started in; mount has it start where mounting is its right.
func (t task) run(tb *testing.T, level Namespaces, mount bool) (result, error) {
	tb.Helper()
	text, err := json.Marshal(t)
	if err != nil {
		tb.Fatal(err)
	}
	near, far, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer near.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"CONFINE_TASK=" + string(text)}
	cmd.ExtraFiles = []*os.File{far}
	var errs strings.Builder
	cmd.Stderr = &errs
	cmd.SysProcAttr = Apart(level, false)
	if mount && level == None {
		cmd.SysProcAttr = Apart(Full, false)
		cmd.SysProcAttr.Cloneflags &^= unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	}
	// It ends with the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	far.Close()
	if err != nil {
		return result{}, fmt.Errorf("%w: %s", err, errs.String())
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		tb.Fatalf("%v: %q, %s", err, out, errs.String())
	}
	return r, nil
}

// try runs the acts, mounting where that is a right and all else where nothing
// but the layers is in the way, and returns how each failed.
func (t task) try(tb *testing.T, level Namespaces) result {
	tb.Helper()
	all := result{Failed: map[string]string{}}
	for _, mount := range []bool{false, true} {
		part := t
		part.Acts = slices.DeleteFunc(slices.Clone(t.Acts), func(a string) bool { return (a == "mount") != mount })
		if len(part.Acts) == 0 {
			continue
		}
		r, err := part.run(tb, level, mount)
		if err != nil {
			tb.Fatal(err)
		}
		for act, failed := range r.Failed {
			all.Failed[act] = failed
		}
		all.Lacks = r.Lacks
	}
	return all
}
