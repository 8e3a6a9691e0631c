package main

import (
	"sync"
	"time"

	"sb/lib/rule"
)

// The budget of names that the guest made up under a wildcard: each one carries
// bytes of its choice to whoever answers for the wildcard's zone. What is left
// is about 32 KiB an hour. To ask for one again tells which of those that are
// known already, and when: that is counted apart, so that who uses sixty names
// of a large zone all day can have each asked for every minute.
const (
	newPerMinute = 60
	newPerHour   = 1000
	octetsPerHr  = 32 << 10
	againPerHour = 3600
)

// budget counts them in windows of a minute and an hour.
type budget struct {
	mu           sync.Mutex
	minute, hour time.Time // when the window began
	inMinute     int
	inHour       int
	octets       int
	again        int
}

// take counts that a name is asked for, again or for the first time as far as is
// remembered; false means that it is over the budget.
func (b *budget) take(name rule.Name, again bool, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.minute) >= time.Minute {
		b.minute, b.inMinute = now, 0
	}
	if now.Sub(b.hour) >= time.Hour {
		b.hour, b.inHour, b.octets, b.again = now, 0, 0, 0
	}
	if again {
		b.again++
		return b.again <= againPerHour
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
