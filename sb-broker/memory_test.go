package main

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"sb/lib/reason"
)

// With too much in memory, those connections end on which nothing has moved for
// longest, until it is less.
func TestRelieve(t *testing.T) {
	fs := newFlows()
	held := atomic.Uint64{}
	held.Store(fullLive)
	looked := make(chan struct{}, 1)
	fs.live = func() uint64 {
		select {
		case looked <- struct{}{}:
		default:
		}
		return held.Load()
	}
	var all []*flow
	for i := range 24 {
		near, far := net.Pipe()
		f := &flow{b: &broker{flows: fs}, closed: make(chan struct{})}
		f.guest, f.upstream = &guestConn{Conn: near, f: f}, &serverConn{Conn: far, f: f}
		f.moved.Store(int64(100 + i))
		if w, ok := fs.enter(f); !ok || (w == wide) != (i < maxWide) {
			t.Fatalf("flow %d: %v %v", i, w, ok)
		}
		all = append(all, f)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { fs.relieve(done); close(ended) }()
	cut := func() (n int) {
		for _, f := range all {
			f.mu.Lock()
			if f.ended == reason.MemoryBudget {
				n++
			}
			f.mu.Unlock()
		}
		return n
	}
	held.Store(maxLive)
	<-looked
	<-looked
	if n := cut(); n != 0 {
		t.Errorf("%d are cut at the bound", n)
	}
	held.Store(maxLive + 1)
	for cut() == 0 {
		<-looked
	}
	held.Store(fullLive)
	close(done)
	<-ended
	n := cut()
	for i, f := range all {
		if was := f.ended != ""; was != (i < n) {
			t.Errorf("flow %d: %v, of %d that are cut", i, was, n)
		}
	}
	if n < 3 || n == len(all) {
		t.Errorf("%d are cut", n)
	}
	fs.leave(all[0])
	if w, ok := fs.enter(all[0]); !ok || w != wide {
		t.Error("none has wide windows after one has ended")
	}
}

// TestMemoryBudget: with too much in memory no connection is taken and no request
// answered.
func TestMemoryBudget(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		c := w.client(http2)
		w.passes(c, request("GET", "/", nil))
		w.held.Store(fullLive + 1)
		w.refuses(c, request("GET", "/", nil), 503, "memory-budget")
		h := w.hand(apiName, w.addr())
		select {
		case why := <-h.end:
			if why != "memory-budget" {
				t.Errorf("it ended with %s", why)
			}
		case <-time.After(10 * time.Second):
			t.Error("it does not end")
		}
		w.has("deny memory-budget -")
		w.held.Store(fullLive)
		w.passes(c, request("GET", "/", nil))
		w.passes(w.client(http2), request("GET", "/", nil))
	})
}
