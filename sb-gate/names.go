package main

import (
	"fmt"
	"net/netip"
	"sync"

	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/wire"
)

// maxHandles bounds the names of one sandbox. sb-dns stops before.
const maxHandles = 65536

// names is which address stands for which name: one address, one name, for as
// long as the sandbox lives.
type names struct {
	net    manifest.Network
	mu     sync.RWMutex
	byAddr map[netip.Addr]rule.Name
}

func newNames(net manifest.Network) *names {
	return &names{net: net, byAddr: map[netip.Addr]rule.Name{}}
}

func (n *names) of(a netip.Addr) (rule.Name, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	name, ok := n.byAddr[a]
	return name, ok
}

func (n *names) has(a netip.Addr) bool {
	_, ok := n.of(a)
	return ok
}

// enter notes that a stands for name. sb-dns is not believed: the address must
// be one that can be a handle, and one that stands for no other name.
func (n *names) enter(a netip.Addr, name rule.Name) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, known := n.byAddr[a]
	switch {
	case known && old == name:
		return nil
	case known:
		return fmt.Errorf("handle %s stands for %s, not for %s", a, old, name)
	case !n.net.IsHandle(a):
		return fmt.Errorf("%s cannot stand for a name", a)
	case len(n.byAddr) >= maxHandles:
		return fmt.Errorf("more than %d handles", maxHandles)
	}
	n.byAddr[a] = name
	return nil
}

// list returns all handles, for an sb-dns that begins anew.
func (n *names) list() []wire.Handle {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]wire.Handle, 0, len(n.byAddr))
	for a, name := range n.byAddr {
		all = append(all, wire.Handle{Name: name.String(), Addr: a})
	}
	return all
}
