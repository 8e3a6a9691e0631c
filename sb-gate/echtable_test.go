package main

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sb/lib/rule"
)

// echAsked is a table with a clock, and what it asks.
type echAsked struct {
	*echTable
	t      *testing.T
	clock  time.Time
	probes atomic.Int64
}

func newEchAsked(t *testing.T) *echAsked {
	a := &echAsked{echTable: newECHTable(), t: t, clock: time.Unix(1e9, 0)}
	a.now = func() time.Time { return a.clock }
	return a
}

func echServerOf(t *testing.T, n int, name string) echServer {
	parsed, err := rule.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return echServer{netip.AddrPortFrom(netip.AddrFrom4([4]byte{45, 67, byte(n >> 8), byte(n)}), 443), parsed}
}

// want asks about a server that would answer so, and how often it was probed by
// then.
func (a *echAsked) want(n int, name string, would, got offer, probes int64) {
	a.t.Helper()
	is := a.ask(echServerOf(a.t, n, name), func() offer { a.probes.Add(1); return would })
	if is != got || a.probes.Load() != probes {
		a.t.Errorf("%d %s: %v after %d probes, want %v after %d", n, name, is, a.probes.Load(), got, probes)
	}
}

// TestB2Lifetime: an answer counts for its time, for its address and its name.
func TestB2Lifetime(t *testing.T) {
	a := newEchAsked(t)
	a.want(1, "a.example", offerNone, offerNone, 1)
	a.want(1, "b.example", offerMade, offerMade, 2)
	a.want(2, "a.example", offerMade, offerMade, 3)
	a.clock = a.clock.Add(echKept - time.Second)
	a.want(1, "a.example", offerMade, offerNone, 3)
	a.want(2, "a.example", offerNone, offerMade, 3)
	a.clock = a.clock.Add(time.Second)
	a.want(1, "a.example", offerMade, offerMade, 4) // it has learnt it since
	a.want(2, "a.example", offerNone, offerNone, 5)
	// Doubt counts for a shorter time.
	a.want(3, "a.example", offerUnknown, offerUnknown, 6)
	a.clock = a.clock.Add(echRetried - time.Second)
	a.want(3, "a.example", offerNone, offerUnknown, 6)
	a.clock = a.clock.Add(time.Second)
	a.want(3, "a.example", offerNone, offerNone, 7)
}

// TestB2Bound: the table holds so many; what would be forgotten next goes first,
// and what is being asked stays.
func TestB2Bound(t *testing.T) {
	a := newEchAsked(t)
	for i := range maxEchKnown {
		a.want(i, "a.example", offerNone, offerNone, int64(i+1))
		a.clock = a.clock.Add(time.Millisecond)
	}
	a.want(maxEchKnown, "a.example", offerMade, offerMade, maxEchKnown+1)
	a.want(1, "a.example", offerMade, offerNone, maxEchKnown+1)       // known
	a.want(0, "a.example", offerUnknown, offerUnknown, maxEchKnown+2) // the eldest was forgotten
	if len(a.known) != maxEchKnown {
		t.Errorf("%d are known", len(a.known))
	}
	// A table of nothing but open questions takes no more, and asks nobody.
	a = newEchAsked(t)
	var asking, wait sync.WaitGroup
	hold := make(chan struct{})
	asking.Add(maxEchKnown)
	for i := range maxEchKnown {
		wait.Go(func() {
			a.ask(echServerOf(t, i, "a.example"), func() offer { asking.Done(); <-hold; return offerNone })
		})
	}
	asking.Wait()
	a.want(maxEchKnown, "a.example", offerNone, offerUnknown, 0)
	close(hold)
	wait.Wait()
	a.want(maxEchKnown, "a.example", offerNone, offerNone, 1)
}

// TestB2OneAtATime: whoever asks while the answer is out waits for it.
func TestB2OneAtATime(t *testing.T) {
	a := newEchAsked(t)
	begun, hold := make(chan struct{}), make(chan struct{})
	var wait sync.WaitGroup
	var got sync.Map
	for i := range 10 {
		wait.Go(func() {
			got.Store(i, a.ask(echServerOf(t, 1, "a.example"), func() offer {
				a.probes.Add(1)
				close(begun) // twice would panic
				<-hold
				return offerNone
			}))
		})
	}
	<-begun
	close(hold)
	wait.Wait()
	got.Range(func(i, o any) bool {
		if o != offerNone {
			t.Errorf("asker %v: %v", i, o)
		}
		return true
	})
	if fmt.Sprint(offerUnknown, offerMade, offerNone) != "unknown offered none" || a.probes.Load() != 1 {
		t.Errorf("%d probes", a.probes.Load())
	}
}
