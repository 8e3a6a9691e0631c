package main

import (
	"fmt"
	"net/netip"
	"sync"

	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/wire"
)

// maxHandles bounds the names that one sandbox may know. An agent's day needs
// hundreds; a browser's, thousands.
const maxHandles = 16384

// handles gives every name an address of its own, for as long as the sandbox
// lives: none is ever given to another name.
type handles struct {
	net    manifest.Network
	mu     sync.Mutex
	byName map[rule.Name]netip.Addr
	byAddr map[netip.Addr]rule.Name
	next   netip.Addr
}

func newHandles(net manifest.Network) *handles {
	return &handles{net: net, byName: map[rule.Name]netip.Addr{}, byAddr: map[netip.Addr]rule.Name{}, next: net.FirstHandle()}
}

// of returns the address that stands for name, a new one if it has none. False:
// there is none left.
func (h *handles) of(name rule.Name) (netip.Addr, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a, ok := h.byName[name]; ok {
		return a, true
	}
	if len(h.byName) >= maxHandles {
		return netip.Addr{}, false
	}
	for h.net.IsHandle(h.next) {
		a := h.next
		h.next = a.Next()
		if _, taken := h.byAddr[a]; !taken {
			h.byName[name], h.byAddr[a] = a, name
			return a, true
		}
	}
	return netip.Addr{}, false
}

// name is what an address stands for.
func (h *handles) name(a netip.Addr) (rule.Name, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := h.byAddr[a]
	return n, ok
}

// enter takes over a handle that the gate knows already. What stands here
// already stays.
func (h *handles) enter(w wire.Handle) error {
	name, err := rule.ParseName(w.Name)
	if err != nil {
		return fmt.Errorf("a handle of the gate's: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	old, named := h.byName[name]
	other, taken := h.byAddr[w.Addr]
	switch {
	case named && old == w.Addr:
		return nil
	case named:
		return fmt.Errorf("a handle of the gate's: %s for %s, which has %s", w.Addr, name, old)
	case taken:
		return fmt.Errorf("a handle of the gate's: %s for %s, which stands for %s", w.Addr, name, other)
	case !h.net.IsHandle(w.Addr) || len(h.byName) >= maxHandles:
		return fmt.Errorf("a handle of the gate's: %s cannot stand for %s", w.Addr, name)
	}
	h.byName[name], h.byAddr[w.Addr] = w.Addr, name
	return nil
}

// list returns all handles, for a gate that begins anew.
func (h *handles) list() []wire.Handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]wire.Handle, 0, len(h.byName))
	for n, a := range h.byName {
		all = append(all, wire.Handle{Name: n.String(), Addr: a})
	}
	return all
}
