package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/kvm.h.
const (
	kvmGetAPIVersion       = 0xae00
	kvmCreateVM            = 0xae01
	kvmGetVCPUMmapSize     = 0xae04
	kvmCreateVCPU          = 0xae41
	kvmRun                 = 0xae80
	kvmSetUserMemoryRegion = 0x4020ae46
	kvmSetRegs             = 0x4090ae82
	kvmGetSregs            = 0x8138ae83
	kvmSetSregs            = 0x4138ae84
	kvmAPIVersion          = 12
	kvmExitIO              = 2
)

const (
	// probeLoops takes a third of a millisecond on a processor that runs guests
	// itself, and more than a second where the kernel only emulates them, as in
	// some clouds.
	probeLoops = 1_000_000
	probeTime  = 50 * time.Millisecond
)

// probeKVM runs a small guest on /dev/kvm against a deadline: that the device
// opens says little. nil means that it is fast enough to be used.
func probeKVM() error {
	if runtime.GOARCH != "amd64" {
		return probeOpens()
	}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer kvm.Close()
	if v, err := ioctl(kvm.Fd(), kvmGetAPIVersion, 0); err != nil || v != kvmAPIVersion {
		return fmt.Errorf("/dev/kvm speaks version %d, not %d (%v)", v, kvmAPIVersion, err)
	}
	p, err := newProbe(kvm.Fd(), probeLoops)
	if err != nil {
		return fmt.Errorf("make a guest on /dev/kvm: %w", err)
	}
	defer p.close()
	return p.run()
}

// probeOpens is what is probed on other processors.
func probeOpens() error {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return kvm.Close()
}

// probe is a virtual machine of one processor and one page of code.
type probe struct {
	vm, vcpu    uintptr
	mem, shared []byte
}

func newProbe(kvm uintptr, loops uint32) (p *probe, err error) {
	p = &probe{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.vm, err = ioctl(kvm, kvmCreateVM, 0); err != nil {
		return p, err
	}
	if p.mem, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED); err != nil {
		return p, err
	}
	// mov ecx, loops (32-bit operand in real mode); dec ecx; jnz; out 0x10, al; hlt
	copy(p.mem, []byte{0x66, 0xb9, byte(loops), byte(loops >> 8), byte(loops >> 16), byte(loops >> 24), 0x66, 0x49, 0x75, 0xfc, 0xe6, 0x10, 0xf4})
	region := struct {
		slot, flags      uint32
		guest, size, usr uint64
	}{size: 4096, usr: uint64(uintptr(unsafe.Pointer(&p.mem[0])))}
	if _, err = ioctl(p.vm, kvmSetUserMemoryRegion, uintptr(unsafe.Pointer(&region))); err != nil {
		return p, err
	}
	size, err := ioctl(kvm, kvmGetVCPUMmapSize, 0)
	if err != nil {
		return p, err
	}
	if p.vcpu, err = ioctl(p.vm, kvmCreateVCPU, 0); err != nil {
		return p, err
	}
	if p.shared, err = unix.Mmap(int(p.vcpu), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return p, err
	}
	return p, p.setRegisters()
}

// setRegisters starts the processor in real mode at address 0.
func (p *probe) setRegisters() error {
	var sregs [312]byte // struct kvm_sregs
	if _, err := ioctl(p.vcpu, kvmGetSregs, uintptr(unsafe.Pointer(&sregs))); err != nil {
		return err
	}
	clear(sregs[:8])    // cs.base
	clear(sregs[12:14]) // cs.selector
	if _, err := ioctl(p.vcpu, kvmSetSregs, uintptr(unsafe.Pointer(&sregs))); err != nil {
		return err
	}
	var regs [18]uint64 // struct kvm_regs: 16 general, rip, rflags
	regs[17] = 2        // the bit that is always set
	_, err := ioctl(p.vcpu, kvmSetRegs, uintptr(unsafe.Pointer(&regs)))
	return err
}

// run runs the loop. When the time is up the processor is told to come back.
func (p *probe) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-done:
		case <-time.After(probeTime):
			p.shared[1] = 1 // kvm_run.immediate_exit
			unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
		}
	}()
	_, err := ioctl(p.vcpu, kvmRun, 0)
	reason := *(*uint32)(unsafe.Pointer(&p.shared[8])) // kvm_run.exit_reason
	switch {
	case errors.Is(err, unix.EINTR):
		return fmt.Errorf("/dev/kvm runs guests too slowly (a loop of %d was not done in %v)", probeLoops, probeTime)
	case err != nil:
		return fmt.Errorf("run a guest on /dev/kvm: %w", err)
	case reason != kvmExitIO:
		return fmt.Errorf("a guest on /dev/kvm ended for reason %d, not %d", reason, kvmExitIO)
	}
	return nil
}

func (p *probe) close() {
	if p.shared != nil {
		unix.Munmap(p.shared)
	}
	if p.mem != nil {
		unix.Munmap(p.mem)
	}
	for _, fd := range []uintptr{p.vcpu, p.vm} {
		if fd != 0 {
			unix.Close(int(fd))
		}
	}
}

func ioctl(fd uintptr, req uint, arg uintptr) (uintptr, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(req), arg)
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}
