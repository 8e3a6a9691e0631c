package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"sb/lib/fd"
	"sb/lib/session"
)

// The machine of both sides.
const (
	cpus     = "2"
	memoryMB = "512"
)

// bare is QEMU without us around it. The guest is the same, so it is spoken to
// in the same way: configured on one port, commanded on the other.
type bare struct {
	argv []string
	dir  string
}

func newBare() (*bare, error) {
	kernel, err := sbImage("kernel", "show")
	if err != nil {
		return nil, err
	}
	base, err := sbImage("path", image)
	if err != nil {
		return nil, err
	}
	// sb-run makes the initramfs; the newest is this build's.
	if _, err := firstByte(memoryMB, "--cold"); err != nil {
		return nil, fmt.Errorf("sb-run: %w", err)
	}
	all, _ := filepath.Glob(filepath.Join(kernel, "initramfs-*.cpio"))
	initramfs, at := "", time.Time{}
	for _, f := range all {
		if st, err := os.Stat(f); err == nil && st.ModTime().After(at) {
			initramfs, at = f, st.ModTime()
		}
	}
	if initramfs == "" {
		return nil, fmt.Errorf("no initramfs beside %s", kernel)
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	return &bare{dir: dir, argv: []string{"qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35,accel=tcg", "-cpu", "max", "-smp", cpus, "-m", memoryMB + "M",
		"-kernel", filepath.Join(kernel, "vmlinux"), "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 rdinit=/init cryptomgr.notests audit=0 random.trust_cpu=on mitigations=off no_timer_check",
		"-netdev", "dgram,id=wire,local.type=fd,local.str=3", "-device", "virtio-net-pci,netdev=wire,romfile=,host_mtu=65520",
		"-drive", "if=none,id=base,format=raw,readonly=on,file=" + base, "-device", "virtio-blk-pci,drive=base",
		"-drive", "if=none,id=disk,format=raw,file=" + filepath.Join(dir, "disk"), "-device", "virtio-blk-pci,drive=disk",
		"-object", "rng-builtin,id=entropy", "-device", "virtio-rng-pci,rng=entropy",
		"-device", "virtio-serial-pci,id=serial",
		"-chardev", "socket,id=machine,fd=4", "-device", "virtserialport,bus=serial.0,chardev=machine,name=sb.machine",
		"-chardev", "socket,id=guest,fd=5", "-device", "virtserialport,bus=serial.0,chardev=guest,name=sb.guest",
	}}, nil
}

func (b *bare) close() { os.RemoveAll(b.dir) }

// firstByte boots once and returns the time to the first byte of echo's output.
func (b *bare) firstByte() (time.Duration, error) {
	disk := filepath.Join(b.dir, "disk")
	os.Remove(disk)
	began := time.Now()
	if _, err := sbImage("disk", disk); err != nil {
		return 0, err
	}
	var near, far [3]*os.File
	for i, kind := range []fd.Kind{fd.Dgram, fd.Stream, fd.Stream} {
		var err error
		if near[i], far[i], err = fd.Pair("bare", kind); err != nil {
			return 0, err
		}
		defer near[i].Close()
	}
	cmd := exec.Command(b.argv[0], b.argv[1:]...)
	cmd.ExtraFiles = far[:]
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for _, f := range far {
		f.Close()
	}
	if err := configure(near[1]); err != nil {
		return 0, err
	}
	return echoed(near[2], began)
}

// echoed runs echo in the guest behind that stream and returns the time from began
// to the first byte of its output.
func echoed(stream *os.File, began time.Time) (time.Duration, error) {
	conn, err := net.FileConn(stream)
	if err != nil {
		return 0, err
	}
	h, err := session.NewHost(conn)
	if err != nil {
		return 0, err
	}
	first := make(chan time.Time, 1)
	if _, err := h.Start(session.Command{Args: []string{"echo", "x"}}, notify(first), io.Discard); err != nil {
		return 0, err
	}
	return (<-first).Sub(began), nil
}

// configure tells the guest the least that it needs (sb/sb-vm/machine).
func configure(port *os.File) error {
	conn, err := net.FileConn(port)
	if err != nil {
		return err
	}
	request := map[string]any{"do": "configure", "time": time.Now().UnixNano(), "configure": map[string]any{
		"hostname": "bare", "address": "198.18.0.2/30", "gateway": "198.18.0.1", "mtu": 65520, "disk_size": 16 << 30}}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return err
	}
	var answer struct {
		Done  bool
		Error string
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return err
	}
	if !answer.Done {
		return fmt.Errorf("the guest says: %s", answer.Error)
	}
	return nil
}

// notify sends the time of the first byte.
type notify chan time.Time

func (n notify) Write(b []byte) (int, error) {
	select {
	case n <- time.Now():
	default:
	}
	return len(b), nil
}
