package netns

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/lib/fd"
	"sb/lib/say"
)

// lab is one gate with its resolver, and a guest on its wire.
type lab struct {
	t         testing.TB
	dir       string
	gate, dns *exec.Cmd
	tap       *exec.Cmd
	frames    [2]*os.File // sb-run would hold them too
	dnsWire   [2]*os.File
}

// manifest is the sandbox of a lab.
type manifest struct {
	allow, deny []string
	mtu         int    // 0: 1500
	ech         string // "": refuse
}

// newLab starts it all; the test's end ends it.
func newLab(t testing.TB, m manifest) *lab {
	t.Helper()
	l := wired(t, m)
	l.startDNS()
	l.startGate()
	l.startTap(m)
	return l
}

// wired is a lab in which nothing runs yet.
func wired(t testing.TB, m manifest) *lab {
	t.Helper()
	l := &lab{t: t, dir: t.TempDir()}
	if m.mtu == 0 {
		m.mtu = 1500
	}
	text := fmt.Sprintf("[network]\nmtu = %d\n", m.mtu)
	if m.ech != "" {
		text += fmt.Sprintf("ech = %q\n", m.ech)
	}
	text += fmt.Sprintf("[rules]\nallow = [%s]\ndeny = [%s]\n", quoted(m.allow), quoted(m.deny))
	for name, text := range map[string]string{"sandbox.toml": text, "resolv.conf": "nameserver 198.18.0.1\n"} {
		if err := os.WriteFile(l.file(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []struct {
		ends *[2]*os.File
		name string
		kind fd.Kind
	}{{&l.frames, "frames", fd.Dgram}, {&l.dnsWire, "dns", fd.Stream}} {
		var err error
		if p.ends[0], p.ends[1], err = fd.Pair(p.name, p.kind); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *lab) startTap(m manifest) {
	l.tap = l.start(filepath.Join(os.Getenv(toolsVar), "tapwire"), []string{"-fd=3", fmt.Sprintf("-mtu=%d", cmp.Or(m.mtu, 1500))}, nil, syscall.CLONE_NEWNET, l.frames[1])
}

func (l *lab) tool(name string) string { return filepath.Join(os.Getenv(binVar), name) }

func quoted(all []string) string {
	for i, s := range all {
		all[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(all, ", ")
}

func (l *lab) file(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) startDNS() { l.startDNSFrom(l.tool("sb-dns")) }

func (l *lab) startDNSFrom(path string) {
	l.t.Helper()
	l.dns = l.start(path, []string{"--manifest", l.file("sandbox.toml"), "--dns=3", "--ready=1"}, nil, 0, l.dnsWire[1])
}

func (l *lab) startGate() {
	l.t.Helper()
	cmd, log := l.gateCommand(l.tool("sb-gate"))
	defer log.Close()
	l.gate = l.start(cmd.Path, cmd.Args[1:], nil, 0, cmd.ExtraFiles...)
}

// gateCommand is a gate on the lab's wires, and its log, for the caller to close.
func (l *lab) gateCommand(path string) (*exec.Cmd, *os.File) {
	l.t.Helper()
	log, err := os.OpenFile(l.file("audit.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(path, "--manifest", l.file("sandbox.toml"), "--frames=3", "--dns=4", "--audit=5", "--ready=1")
	cmd.ExtraFiles = []*os.File{l.frames[0], l.dnsWire[0], log}
	return cmd, log
}

// start starts a process that says on its stdout that it is ready.
func (l *lab) start(path string, args, env []string, clone uintptr, files ...*os.File) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command(path, args...)
	cmd.ExtraFiles = files
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: clone, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if l.t.Failed() && errs.Len() > 0 {
			l.t.Logf("%s says:\n%s", filepath.Base(path), &errs)
		}
	})
	line := make([]byte, 64)
	n, err := out.Read(line)
	if said := strings.TrimSpace(string(line[:n])); said != "up" && said != "ready "+say.Version && !strings.HasPrefix(said, "ready ") {
		l.t.Fatalf("%s: %q, %v\n%s", filepath.Base(path), said, err, &errs)
	}
	return cmd
}

// in runs a command in the guest and returns what it prints on both outputs.
func (l *lab) in(name string, args ...string) (string, error) {
	cmd := l.inCommand(name, args...)
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// inCommand is a command to be run in the guest. Its nameserver is the gateway.
func (l *lab) inCommand(name string, args ...string) *exec.Cmd {
	resolv := l.file("resolv.conf")
	script := `mount --bind "$1" /etc/resolv.conf; shift; exec "$@"`
	all := append([]string{"--target", fmt.Sprint(l.tap.Process.Pid), "--net", "unshare", "--mount", "sh", "-c", script, "sh", resolv, name}, args...)
	cmd := exec.Command("nsenter", all...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv(toolsVar)+":"+os.Getenv("PATH"))
	return cmd
}

// log is the audit log so far.
func (l *lab) log() (lines []audit.Line) {
	l.t.Helper()
	text, err := os.ReadFile(l.file("audit.log"))
	if err != nil {
		l.t.Fatal(err)
	}
	return parse(l.t, text)
}

// parse reads the whole lines of a log.
func parse(t testing.TB, text []byte) (lines []audit.Line) {
	t.Helper()
	for s := range strings.Lines(string(text)) {
		if !strings.HasSuffix(s, "\n") {
			break
		}
		line, err := audit.Parse([]byte(s))
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		lines = append(lines, line)
	}
	return lines
}
