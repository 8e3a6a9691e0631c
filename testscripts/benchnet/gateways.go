package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sb/lib/fd"
)

// gateway is one row's kind: how to start it and what its guest is told.
type gateway struct {
	name string
	mtu  int
	wire string // datagram or stream
	addr string // of the guest
	gw   string
	run  func(b *bench_, g gateway, dir string) (*running, error)
}

// gateways are the rows. gvproxy's default is an MTU of 1500; the gate's on Linux
// is 65520, on macOS 1500.
var gateways = []gateway{
	{"gvproxy", 1500, "datagram", "192.168.127.2/24", "192.168.127.1", runGvproxy},
	{"gvproxy", 65520, "datagram", "192.168.127.2/24", "192.168.127.1", runGvproxy},
	{"passt", 1500, "stream", "10.9.9.2/24", "10.9.9.1", runPasst},
	{"passt", 65520, "stream", "10.9.9.2/24", "10.9.9.1", runPasst},
	{"sb-gate", 1500, "datagram", "198.18.0.2/30", "198.18.0.1", runGate},
	{"sb-gate", 65520, "datagram", "198.18.0.2/30", "198.18.0.1", runGate},
}

func (g gateway) key() string { return fmt.Sprintf("%s %d", g.name, g.mtu) }

// running is a gateway with a guest on it.
type running struct {
	process *exec.Cmd // the gateway's, whose CPU is counted
	others  []*exec.Cmd
	guest   *exec.Cmd
}

func (r *running) stop() {
	for _, c := range append(r.others, r.guest, r.process) {
		if c != nil {
			c.Process.Kill()
			c.Wait()
		}
	}
}

// cpuOf is a process's CPU time so far, in seconds.
func cpuOf(c *exec.Cmd) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100
}

// resident is the gateway's memory, in MiB.
func (r *running) resident() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.process.Process.Pid))
	if err != nil {
		return 0
	}
	kib := 0.0
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "VmRSS: %f kB", &kib)
	}
	return kib / 1024
}

// startProcess starts a program; if it says something on stdout when it is
// ready, that is waited for.
func startProcess(clone uintptr, waits bool, files []*os.File, name string, args ...string) (*exec.Cmd, error) {
	return startProcessOn(nil, clone, waits, files, name, args...)
}

// startProcessOn starts it with an input.
func startProcessOn(input *os.File, clone uintptr, waits bool, files []*os.File, name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	if input != nil {
		cmd.Stdin = input
	}
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: clone, Pdeathsig: syscall.SIGKILL}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if !waits {
		return cmd, cmd.Start()
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if n, err := out.Read(make([]byte, 64)); n == 0 {
		cmd.Wait()
		return nil, fmt.Errorf("%s: %v: %s", filepath.Base(name), err, &errs)
	}
	return cmd, nil
}

func (b *bench_) pump(g gateway, files []*os.File, args ...string) (*exec.Cmd, error) {
	args = append(args, "-mtu", fmt.Sprint(g.mtu), "-addr", g.addr, "-gw", g.gw)
	return startProcess(syscall.CLONE_NEWNET, true, files, filepath.Join(os.Getenv(toolsVar), "tapwire"), args...)
}

func runGate(b *bench_, g gateway, dir string) (*running, error) {
	manifest := filepath.Join(dir, "sandbox.toml")
	text := fmt.Sprintf("[network]\nmtu = %d\n[rules]\nallow = [\"fast.example.org\"]\n", g.mtu)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		return nil, err
	}
	frames, guest, err := fd.Pair("frames", fd.Dgram)
	if err != nil {
		return nil, err
	}
	gateDNS, dns, err := fd.Pair("dns", fd.Stream)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "audit.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	for _, f := range []*os.File{frames, guest, gateDNS, dns, log} {
		defer f.Close()
	}
	r := &running{}
	bin := os.Getenv(binVar)
	d, err := startProcess(0, true, []*os.File{dns}, filepath.Join(bin, "sb-dns"), "--manifest", manifest, "--dns=3", "--ready=1")
	if err != nil {
		return nil, err
	}
	r.others = append(r.others, d)
	if r.process, err = startProcess(0, true, []*os.File{frames, gateDNS, log}, filepath.Join(bin, "sb-gate"), "--manifest", manifest, "--frames=3", "--dns=4", "--audit=5", "--ready=1"); err != nil {
		r.stop()
		return nil, err
	}
	r.guest, err = b.pump(g, []*os.File{guest}, "-fd=3")
	return r, err
}

func runGvproxy(b *bench_, g gateway, dir string) (*running, error) {
	path := filepath.Join(dir, "gv.sock")
	r := &running{}
	var err error
	if r.process, err = startProcess(0, false, nil, filepath.Join(os.Getenv(toolsVar), "gvproxy"), "-listen-vfkit", "unixgram://"+path, "-mtu", fmt.Sprint(g.mtu), "-ssh-port", "-1"); err != nil {
		return nil, err
	}
	if err := await(path); err != nil {
		r.stop()
		return nil, err
	}
	r.guest, err = b.pump(g, nil, "-vfkit", path)
	return r, err
}

func runPasst(b *bench_, g gateway, dir string) (*running, error) {
	path := filepath.Join(dir, "passt.sock")
	name := "passt"
	if full, err := exec.LookPath("passt.avx2"); err == nil {
		name = full
	}
	r := &running{}
	var err error
	if r.process, err = startProcess(0, false, nil, name, "-f", "-q", "-s", path, "-m", fmt.Sprint(g.mtu), "-4", "-a", strings.TrimSuffix(g.addr, "/24"), "-n", "24", "-g", g.gw,
		"-t", "none", "-u", "none", "--runas", "0"); err != nil {
		return nil, err
	}
	if err := await(path); err != nil {
		r.stop()
		return nil, err
	}
	r.guest, err = b.pump(g, nil, "-passt", path)
	return r, err
}

func await(path string) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not appear", path)
		}
	}
}
