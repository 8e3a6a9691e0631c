package world

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Listen listens on an address of the world's servers for the test that calls it: what
// a server there sees is then the test's own to look at.
func Listen(addr string) (net.Listener, error) {
	pid, err := ServersPID()
	if err != nil {
		return nil, err
	}
	type result struct {
		l   net.Listener
		err error
	}
	done := make(chan result)
	go func() {
		// The thread is of that network from now on, and must neither run anything else
		// nor end: what it has started ends with it (Pdeathsig), such as the servers.
		runtime.LockOSThread()
		l, err := listenIn(fmt.Sprintf("/proc/%d/ns/net", pid), addr)
		done <- result{l, err}
		select {}
	}()
	r := <-done
	return r.l, r.err
}

// listenIn listens in another network namespace, into which its thread goes. A socket
// stays in the one that it was made in.
func listenIn(namespace, addr string) (net.Listener, error) {
	ns, err := os.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the servers' network: %w", err)
	}
	return net.Listen("tcp", addr)
}
