//go:build linux

package main

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// processes is every child of process 1: those that it started, and orphans,
// which it only buries.
type processes struct {
	mu   sync.Mutex
	ours map[int]chan unix.WaitStatus
}

func newProcesses() *processes { return &processes{ours: map[int]chan unix.WaitStatus{}} }

// start starts a program; the channel gets its end.
func (p *processes) start(path string, args []string, attr *os.ProcAttr) (*child, error) {
	// Held until the child is known, so that reap cannot be quicker.
	p.mu.Lock()
	defer p.mu.Unlock()
	proc, err := os.StartProcess(path, args, attr)
	if err != nil {
		return nil, err
	}
	c := &child{pid: proc.Pid, end: make(chan unix.WaitStatus, 1)}
	p.ours[c.pid] = c.end
	proc.Release()
	return c, nil
}

// child is a process that was started.
type child struct {
	pid int
	end chan unix.WaitStatus
}

// reap buries every child that ends.
func (p *processes) reap() {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, unix.SIGCHLD)
	for range sig {
		for p.reapOne() {
		}
	}
}

func (p *processes) reapOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ws unix.WaitStatus
	pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
	if err == unix.EINTR {
		return true
	}
	if pid <= 0 {
		return false
	}
	if end, ok := p.ours[pid]; ok {
		delete(p.ours, pid)
		end <- ws
	}
	return true
}
