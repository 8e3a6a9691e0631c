package main

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"sb/lib/confine"
	"sb/lib/keep"
	"sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

// The descriptors that QEMU inherits: an index into exec's ExtraFiles, and 3.
const (
	fdFrames = 3 + iota
	fdGuest
	fdMachine
	fdConsole
	fdMonitor // QEMU's, of one that is saved or restored
	fdShares  // the first of them
)

// qemu is a command line of QEMU, and what it may open.
type qemu struct {
	*parts
	m       *manifest.Manifest
	program string // path
	arch    string // as Go calls it
	accel   string // kvm or tcg
	saved   string // the file of the memory that is to be saved
}

// newQEMU finds everything that the machine needs, before anything is started.
func newQEMU(m *manifest.Manifest) (*qemu, error) {
	q := &qemu{m: m, arch: runtime.GOARCH}
	name, pkg := "qemu-system-x86_64", "qemu-system-x86"
	if q.arch == "arm64" {
		name, pkg = "qemu-system-aarch64", "qemu-system-arm"
	}
	var err error
	if q.program, err = exec.LookPath(name); err != nil {
		return nil, say.WithHint(fmt.Errorf("find QEMU: %w", err), "install the package %s", pkg)
	}
	// What a guest could have put there must not be started on the host.
	if host, ok := keep.Inside(m.Shares, q.program); ok {
		return nil, say.WithHint(fmt.Errorf("start %s: it lies in the share %s, where the guest could replace it", q.program, host),
			"take its directory out of PATH, or share %s read-only", host)
	}
	if q.parts, err = findParts(m.Machine); err != nil {
		return nil, err
	}
	q.accel, err = chooseAccel(m.Machine.Accel)
	if q.accel == "tcg" {
		// QEMU asks for huge pages for the code that it translates, and so takes 2 MiB
		// where it needs little. This is for its process too; without it, it works.
		unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	}
	return q, err
}

// chooseAccel decides between the processor and emulation, which is slow and,
// its authors say, no security boundary: then it is said.
func chooseAccel(want string) (string, error) {
	if want == "tcg" {
		return "tcg", nil
	}
	err := probeKVM()
	switch {
	case err == nil:
		return "kvm", nil
	case want == "kvm":
		return "", say.WithHint(fmt.Errorf("use KVM: %w", err), "--accel tcg emulates the processor instead, slowly")
	}
	say.Warn("the machine is emulated, which is slow and which QEMU's authors do not count as a security boundary: %v (--accel tcg says that it is meant)", err)
	return "tcg", nil
}

// start is how a machine comes to life.
type start int

const (
	cold    start = iota // it boots
	save                 // it boots, to be saved
	restore              // from what was saved
)

// The memory of a machine that is saved or restored has a file. QEMU is given
// the one that is restored under a name that leads nowhere (see handOver).
const restoredMemory = "/template/memory"

// argv is the command line. Every device is listed: -nodefaults.
func (q *qemu) argv(how start) []string {
	m := q.m.Machine
	ports, shares := sharePorts(len(q.m.Shares)), len(q.m.Shares)
	if how == save {
		shares = ports // with nobody at them
	}
	args := []string{q.program,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-name", q.m.Name,
		"-machine", q.machine(how),
		"-cpu", map[string]string{"kvm": "host", "tcg": "max"}[q.accel],
		"-smp", strconv.Itoa(m.CPUs),
		"-m", fmt.Sprintf("%dM", int64(m.Memory)>>20),
		"-kernel", q.kernel, "-initrd", q.initramfs, "-append", q.cmdline(),
		// No new processes, no new privileges, none of the old system calls.
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", chardev("console", fdConsole), "-serial", "chardev:console",
		"-netdev", fmt.Sprintf("dgram,id=wire,local.type=fd,local.str=%d", fdFrames),
		// It tells nobody that it was restored. (A QEMU that is told so by its monitor
		// alone, as it is besides, reads through a null pointer when the card is reset.)
		"-device", "virtio-net-pci,netdev=wire,romfile=,guest_announce=off,mac=" + manifest.GuestMAC.String() + ",host_mtu=" + strconv.Itoa(q.m.Network.MTU),
		"-blockdev", "driver=file,node-name=base,read-only=on,filename=" + escape(m.Base),
		"-device", "virtio-blk-pci,drive=base",
		"-blockdev", "driver=file,node-name=disk,discard=unmap,filename=" + escape(m.Disk),
		// What cannot be written is an error in the guest, and room tells. QEMU's default
		// is to stop the machine where the host's disk is full, and nobody would make it
		// go on.
		"-device", "virtio-blk-pci,drive=disk,discard=on,werror=report",
	}
	if m.Kept != "" {
		args = append(args, "-blockdev", "driver=file,node-name=kept,discard=unmap,filename="+escape(m.Kept),
			"-device", "virtio-blk-pci,drive=kept,discard=on,werror=report")
	}
	args = append(args,
		"-object", "rng-builtin,id=entropy", "-device", "virtio-rng-pci,rng=entropy",
		"-device", fmt.Sprintf("virtio-serial-pci,id=serial,max_ports=%d", ports+3))
	args = append(args, port(machine.Port, chardev(machine.Port, fdMachine))...)
	for i := range ports {
		far := "null,id=" + sharePort(i)
		if i < shares {
			far = chardev(sharePort(i), fdShares+i)
		}
		args = append(args, port(sharePort(i), far)...)
	}
	// The last one: when the guest sees it, all are there.
	args = append(args, port(machine.GuestPort, chardev(machine.GuestPort, fdGuest))...)
	return append(args, q.memory(how)...)
}

// sharePorts is how many ports for shares a machine with so many shares has: a
// power of two, of which the others lead nowhere, so that one saved machine can
// be restored with any number of shares up to it.
func sharePorts(shares int) int {
	n := 4
	for n < shares {
		n *= 2
	}
	return n
}

// memory is where the memory lies, for a machine that is saved or restored, and
// what else that takes. What QEMU saves of it is all but the memory: that is in
// its file.
func (q *qemu) memory(how start) []string {
	if how == cold {
		return nil
	}
	ram := fmt.Sprintf("memory-backend-file,id=ram,size=%dM", int64(q.m.Machine.Memory)>>20)
	monitor := []string{"-chardev", chardev("monitor", fdMonitor), "-mon", "chardev=monitor,mode=control"}
	if how == save {
		return append(monitor, "-object", ram+",share=on,mem-path="+escape(q.saved))
	}
	return append(monitor, "-object", ram+",share=off,mem-path="+restoredMemory, "-incoming", "defer")
}

func (q *qemu) machine(how start) string {
	m := "q35,usb=off,vmport=off,smbus=off,sata=off,hpet=off,i8042=off,accel=" + q.accel
	if q.arch == "arm64" {
		m = "virt,gic-version=max,accel=" + q.accel
	}
	if how != cold {
		m += ",memory-backend=ram"
	}
	return m
}

// cmdline is the kernel's. Under emulation it leaves out what only costs time
// there: mitigations against a processor's faults, and self-tests.
func (q *qemu) cmdline() string {
	line := cmdline("ttyS0")
	if q.arch == "arm64" {
		line = cmdline("ttyAMA0")
	}
	if q.accel == "tcg" {
		line += " mitigations=off no_timer_check"
	}
	return line
}

func chardev(id string, n int) string { return fmt.Sprintf("socket,id=%s,fd=%d", id, n) }

// port is a virtio port of that name on a chardev of that name.
func port(name, chardev string) []string {
	return []string{"-chardev", chardev, "-device", "virtserialport,bus=serial.0,chardev=" + name + ",name=" + name}
}

// escape doubles the commas of a path, as QEMU's options want them.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// files is what the confined QEMU sees of the file system: its program, what
// that is made of, and the machine's own files.
func (q *qemu) files(how start) (confine.View, error) {
	loader, err := interpreter(q.program)
	if err != nil {
		return confine.View{}, err
	}
	v := confine.View{Exec: []string{q.program, loader}, Write: []string{q.m.Machine.Disk, "/dev/null"},
		Read: []string{q.m.Machine.Base, q.kernel, q.initramfs}}
	for _, path := range []string{"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/qemu", "/usr/share/seabios", "/usr/share/qemu-efi-aarch64", "/etc/ld.so.cache"} {
		if _, err := os.Stat(path); err == nil {
			v.Read = append(v.Read, path)
		}
	}
	if q.m.Machine.Kept != "" {
		v.Write = append(v.Write, q.m.Machine.Kept)
	}
	if how == save {
		v.Write = append(v.Write, q.saved)
	}
	if q.accel == "kvm" {
		v.Write = append(v.Write, "/dev/kvm")
	}
	return v, nil
}

// interpreter is the dynamic loader that a program names.
func interpreter(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", program, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(b), "\x00"), err
		}
	}
	return "", fmt.Errorf("read %s: it names no dynamic loader", program)
}
