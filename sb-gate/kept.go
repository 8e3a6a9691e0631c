package main

import (
	"net/netip"
	"sync"
	"time"

	"sb/lib/rule"
)

const (
	keepTime = time.Second
	maxKept  = 256
)

// kept is where names were found a moment ago: a client that opens many
// connections to one name asks sb-dns once. They are judged anew for each.
type kept struct {
	mu     sync.Mutex
	byName map[rule.Name]keptAddrs
}

type keptAddrs struct {
	addrs []netip.Addr
	until time.Time
}

// get returns the addresses of a name; nil if they are not known now.
func (k *kept) get(name rule.Name, now time.Time) []netip.Addr {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.byName[name]; now.Before(a.until) {
		return a.addrs
	}
	return nil
}

// put keeps addresses for as long as they are good for, and never for long.
func (k *kept) put(name rule.Name, addrs []netip.Addr, ttl time.Duration, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.byName) >= maxKept {
		clear(k.byName)
	}
	k.byName[name] = keptAddrs{addrs, now.Add(min(ttl, keepTime))}
}
