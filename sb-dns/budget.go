package main

import (
	"sync"
	"time"

	"sb/lib/rule"
)

// The budget of names that the guest made up under a wildcard: each one carries
// bytes of its choice to whoever answers for the wildcard's zone. What is left
// is about 32 KiB an hour.
const (
	newPerMinute = 60
	newPerHour   = 1000
	octetsPerHr  = 32 << 10
)

// budget counts them in two windows.
type budget struct {
	mu           sync.Mutex
	minute, hour time.Time // when the window began
	inMinute     int
	inHour       int
	octets       int
}

// take counts a new name; false means that it is over the budget.
func (b *budget) take(name rule.Name, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.minute) >= time.Minute {
		b.minute, b.inMinute = now, 0
	}
	if now.Sub(b.hour) >= time.Hour {
		b.hour, b.inHour, b.octets = now, 0, 0
	}
	n := len(name.String())
	if b.inMinute >= newPerMinute || b.inHour >= newPerHour || b.octets+n > octetsPerHr {
		return false
	}
	b.inMinute++
	b.inHour++
	b.octets += n
	return true
}
