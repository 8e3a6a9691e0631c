//go:build linux

package main

import (
	"fmt"
	"os"

	"sb/lib/fd"
	"sb/lib/say"
	"sb/sb-vm/machine"
)

// mountShare starts the process that relays a share and waits until it works.
func mountShare(s machine.Share, p *processes) error {
	port, err := openPort(s.Port)
	if err != nil {
		return err
	}
	defer port.Close()
	if err := os.MkdirAll(s.Target, 0o755); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	args := []string{"sb-guest", "share", "--port=3", "--ready=4"}
	if s.ReadOnly {
		args = append(args, "--read-only")
	}
	_, err = p.start("/proc/self/exe", append(args, s.Target), &os.ProcAttr{Dir: "/", Files: []*os.File{nil, os.Stdout, os.Stderr, port, w}})
	w.Close()
	if err != nil {
		return err
	}
	if err := fd.WaitReady(r, say.Version); err != nil {
		return fmt.Errorf("its relay did not start: %w", err)
	}
	return nil
}
