package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"sb/lib/cpio"
	"sb/lib/say"
)

// guestProgram is the path of the program that becomes process 1 of the guest:
// beside this one, or where `make install` puts it.
func guestProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	for _, path := range []string{filepath.Join(dir, "sb-guest"), filepath.Join(dir, "..", "libexec", "sb", "sb-guest")} {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", say.WithHint(fmt.Errorf("find sb-guest, the program inside the guest: not beside %s", self), "make build makes it")
}

// initramfs returns the path of the initial file system for a kernel directory:
// this release's guest program and the kernel's modules. It is kept beside the
// kernel, under a name that says what is in it.
func initramfs(kernel string) (string, error) {
	program, err := guestProgram()
	if err != nil {
		return "", err
	}
	init, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read the guest program: %w", err)
	}
	sum := sha256.Sum256(init)
	path := filepath.Join(kernel, "initramfs-"+hex.EncodeToString(sum[:8])+".cpio")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := writeInitramfs(path, kernel, init); err != nil {
		return "", fmt.Errorf("make the initramfs: %w", err)
	}
	return path, nil
}

// writeInitramfs publishes the file as a whole or not at all.
func writeInitramfs(path, kernel string, init []byte) error {
	f, err := os.CreateTemp(kernel, ".initramfs-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := cpio.NewWriter(f)
	err = errors.Join(
		w.Dir("dev", 0o755), w.Dir("proc", 0o755), w.Dir("sys", 0o755),
		// Until devtmpfs is mounted, process 1 speaks here; to nobody where the
		// console's driver is a module.
		w.Char("dev/console", 0o600, 5, 1), w.Char("dev/null", 0o666, 1, 3),
		w.File("init", 0o755, int64(len(init)), bytes.NewReader(init)),
		w.Close(),
	)
	if err != nil {
		return err
	}
	// A second archive behind the first: the kernel unpacks both.
	modules, err := os.Open(filepath.Join(kernel, "modules.cpio"))
	if err == nil {
		_, err = io.Copy(f, modules)
		modules.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func fileSize(path string) (int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
