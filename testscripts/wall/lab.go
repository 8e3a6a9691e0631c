package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sb/lib/audit"
	"sb/lib/fd"

	"golang.org/x/sys/unix"
)

// lab is one gate with its resolver, and a guest on its wire.
type lab struct {
	dir            string
	gate, dns, tap *exec.Cmd
	frames         [2]*os.File // the gate's end and the guest's
	dnsWire        [2]*os.File
}

const mtu = 1500

// newLab starts a gate and a resolver with the rules given.
func newLab(allow ...string) (l *lab, err error) {
	l = &lab{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.dir, err = os.MkdirTemp("", "sb-wall-"); err != nil {
		return l, err
	}
	for i := range allow {
		allow[i] = strconv.Quote(allow[i])
	}
	text := fmt.Sprintf("[network]\nmtu = %d\n[rules]\nallow = [%s]\n", mtu, strings.Join(allow, ", "))
	if err = os.WriteFile(l.file("sandbox.toml"), []byte(text), 0o600); err != nil {
		return l, err
	}
	if l.frames[0], l.frames[1], err = fd.Pair("frames", fd.Dgram); err != nil {
		return l, err
	}
	if l.dnsWire[0], l.dnsWire[1], err = fd.Pair("dns", fd.Stream); err != nil {
		return l, err
	}
	log, err := os.OpenFile(l.file("audit.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return l, err
	}
	defer log.Close()
	manifest := []string{"--manifest", l.file("sandbox.toml"), "--ready=1"}
	if l.dns, err = start(tool("sb-dns"), 0, append(manifest, "--dns=3"), l.dnsWire[1]); err != nil {
		return l, err
	}
	if l.gate, err = start(tool("sb-gate"), 0, append(manifest, "--frames=3", "--dns=4", "--audit=5"), l.frames[0], l.dnsWire[0], log); err != nil {
		return l, err
	}
	return l, nil
}

// newGuestLab is one whose guest is a network namespace.
func newGuestLab(allow ...string) (*lab, error) {
	l, err := newLab(allow...)
	if err != nil {
		return nil, err
	}
	pump := filepath.Join(os.Getenv(toolsVar), "tapwire")
	if l.tap, err = start(pump, syscall.CLONE_NEWNET, []string{"-fd=3", fmt.Sprintf("-mtu=%d", mtu)}, l.frames[1]); err != nil {
		l.close()
		return nil, err
	}
	// The pump asked for a large buffer, which a hypervisor's end does not have: a
	// queue of ten thousand frames would be what is measured.
	if err := unix.SetsockoptInt(int(l.frames[1].Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF, wireBuffer); err != nil {
		l.close()
		return nil, fmt.Errorf("set the wire's buffer: %w", err)
	}
	return l, nil
}

// wireBuffer is what a socket has of which nobody asked for more: the kernel's
// net.core.wmem_default, of which it counts the half.
const wireBuffer = 212992 / 2

func tool(name string) string { return filepath.Join(os.Getenv(binVar), name) }

func (l *lab) file(name string) string { return filepath.Join(l.dir, name) }

// start starts a process that says on its stdout that it is ready.
func start(path string, clone uintptr, args []string, files ...*os.File) (*exec.Cmd, error) {
	cmd := exec.Command(path, args...)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: clone, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if n, err := out.Read(make([]byte, 64)); n == 0 {
		return cmd, fmt.Errorf("%s was not ready: %w", filepath.Base(path), err)
	}
	return cmd, nil
}

// close ends it all. The gate ends first, as it should, so that its log is whole.
func (l *lab) close() {
	if l.gate != nil {
		l.endGate()
	}
	for _, c := range []*exec.Cmd{l.tap, l.dns} {
		if c != nil {
			c.Process.Kill()
			c.Wait()
		}
	}
	for _, f := range append(l.frames[:], l.dnsWire[:]...) {
		if f != nil {
			f.Close()
		}
	}
	os.RemoveAll(l.dir)
}

// endGate tells the gate to end and waits until it has.
func (l *lab) endGate() {
	l.gate.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(20*time.Second, func() { l.gate.Process.Kill() })
	l.gate.Wait()
	late.Stop()
}

// inGuest starts a copy of this program in the guest's network.
func (l *lab) inGuest(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	all := append([]string{"--target", fmt.Sprint(l.tap.Process.Pid), "--net", self, "guest"}, args...)
	cmd := exec.Command("nsenter", all...)
	cmd.Env = append(os.Environ(), guestVar+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// askGuest runs a copy of this program in the guest and reads the figures that
// it prints.
func (l *lab) askGuest(args ...string) (map[string]float64, error) {
	cmd := l.inGuest(args...)
	late := time.AfterFunc(15*time.Minute, func() { cmd.Process.Kill() })
	defer late.Stop()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("guest %v: %w", args, err)
	}
	got := map[string]float64{}
	return got, json.Unmarshal(out, &got)
}

// memory is the resident memory of a process in KiB, and the most it has had.
func memory(p *exec.Cmd) (now, peak float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			now = n
		case "VmHWM:":
			peak = n
		}
	}
	return now, peak
}

// log is the audit log so far.
func (l *lab) log() (lines []audit.Line, err error) {
	text, err := os.ReadFile(l.file("audit.log"))
	if err != nil {
		return nil, err
	}
	for s := range strings.Lines(string(text)) {
		if !strings.HasSuffix(s, "\n") {
			break
		}
		line, err := audit.Parse([]byte(s))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// settled waits until the gate and the resolver have read what was sent to them,
// and have had nothing to read for a while.
func (l *lab) settled() error {
	since := time.Now()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, f := range []*os.File{l.frames[0], l.dnsWire[0], l.dnsWire[1]} {
			if n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ); err != nil {
				return err
			} else if n > 0 {
				since = time.Now()
			}
		}
		if time.Since(since) > time.Second {
			return nil
		}
	}
	return fmt.Errorf("the gate had not read everything in two minutes")
}
