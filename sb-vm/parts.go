package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sb/lib/manifest"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// parts are the files that a machine is made of, whatever the hypervisor.
type parts struct {
	kernel    string
	initramfs string
	base      *os.File // held open, with a shared lock, so that the image is not removed
}

// findParts finds them, before anything is started.
func findParts(m manifest.Machine) (*parts, error) {
	if m.Kernel == "" || m.Base == "" || m.Disk == "" {
		return nil, say.WithHint(errors.New("the manifest must set machine.kernel, machine.base and machine.disk"),
			"sb-image kernel show, sb-image path IMAGE and sb-image disk FILE have them")
	}
	p := &parts{kernel: filepath.Join(m.Kernel, "vmlinux")}
	if _, err := os.Stat(p.kernel); err != nil {
		return nil, say.WithHint(fmt.Errorf("open the kernel: %w", err), "sb-image kernel install fetches one")
	}
	if _, err := os.Stat(m.Disk); err != nil {
		return nil, say.WithHint(fmt.Errorf("open the writable disk: %w", err), "sb-image disk FILE makes one")
	}
	var err error
	if p.initramfs, err = initramfs(m.Kernel); err != nil {
		return nil, err
	}
	p.base, err = lockBase(m.Base)
	return p, err
}

// lockBase opens the image and marks it as used.
func lockBase(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, say.WithHint(fmt.Errorf("open the base image: %w", err), "sb-image pull fetches an image, sb-image path tells where it is")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the base image %s: %w", path, err)
	}
	return f, nil
}

// cmdline is the kernel's command line with its console on that device.
func cmdline(console string) string {
	return "console=" + console + " quiet panic=-1 rdinit=/init cryptomgr.notests audit=0 random.trust_cpu=on"
}
