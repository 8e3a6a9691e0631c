package main

import (
	"cmp"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"sb/lib/reason"
)

// What a guest can make the broker hold is bounded by how much may wait on each
// connection, as in the gate: a few have wide windows, the others narrow ones. What
// net/http holds besides, such as half a megabyte for each body that is on its way to
// a server with large frames, is watched: where it is too much, some connections end.
const (
	maxWide     = 16        // connections with wide windows
	connBuffer  = 2 << 10   // each way, of a connection to a server: what is larger passes it by
	bodyBuffer  = 8 << 10   // of an answer that is being given
	maxFrame    = 16 << 10  // of HTTP/2: net/http makes room for a whole one when it is told the length
	fullLive    = 144 << 20 // bytes in use, above which no connection and no request is taken
	maxLive     = 160 << 20 // above which some connections are cut
	memoryLimit = 192 << 20 // of the process, above which memory is given back before more is taken

	relieveEvery = 50 * time.Millisecond
	settled      = 500 * time.Millisecond // without a connection that begins or ends, what the last ones took is given back
)

// windows are what may wait on a connection by HTTP/2, in bytes: of the guest's
// requests, which come from near, and of the server's answers, which come from afar.
type windows struct{ stream, conn, farStream, farConn int }

var (
	wide   = windows{128 << 10, 256 << 10, 1 << 20, 2 << 20}
	narrow = windows{64 << 10, 64 << 10, 64 << 10, 64 << 10}
)

func (w windows) near() *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, MaxReceiveBufferPerStream: w.stream, MaxReceiveBufferPerConnection: w.conn}
}

func (w windows) far() *http.HTTP2Config {
	return &http.HTTP2Config{MaxReadFrameSize: maxFrame, MaxReceiveBufferPerStream: w.farStream, MaxReceiveBufferPerConnection: w.farConn}
}

// flows are the connections that are served.
type flows struct {
	live func() uint64 // bytes in use

	mu      sync.Mutex
	all     map[*flow]bool // whether it has wide windows
	wide    int
	changed time.Time // when one came or went; zero: memory was given back since
}

func newFlows() *flows { return &flows{live: liveBytes, all: map[*flow]bool{}} }

// full says that nothing more may be taken.
func (fs *flows) full() bool { return fs.live() > fullLive }

// enter counts a flow and says what may wait on it. False: there is no room.
func (fs *flows) enter(f *flow) (w windows, ok bool) {
	if fs.full() {
		return w, false
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	isWide := fs.wide < maxWide
	if w = narrow; isWide {
		w = wide
		fs.wide++
	}
	fs.all[f] = isWide
	fs.changed = time.Now()
	return w, true
}

func (fs *flows) leave(f *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all[f] {
		fs.wide--
	}
	delete(fs.all, f)
	fs.changed = time.Now()
}

// liveBytes is how many bytes are in use: what the last collection found, and the
// stacks.
func liveBytes() uint64 { return bytesOf("/gc/heap/live:bytes") }

// takenBytes is what has been taken, with what may be collected.
func takenBytes() uint64 { return bytesOf("/memory/classes/heap/objects:bytes") }

func bytesOf(heap string) uint64 {
	sample := []metrics.Sample{{Name: heap}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() + sample[1].Value.Uint64()
}

// relieve keeps what is held below maxLive, until done is closed.
func (fs *flows) relieve(done <-chan struct{}) {
	tick := time.NewTicker(relieveEvery)
	defer tick.Stop()
	var collected time.Time
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			if fs.haveSettled(now) {
				debug.FreeOSMemory() // what is idle collects nothing by itself
			}
			live := fs.live()
			if live <= maxLive && (max(live, takenBytes()) <= fullLive || now.Sub(collected) < time.Second) {
				continue
			}
			runtime.GC() // what was closed meanwhile counts no more
			if collected = now; fs.live() > maxLive {
				fs.cutQuiet()
			}
		}
	}
}

// haveSettled says once that no connection has come or gone for a while.
func (fs *flows) haveSettled(now time.Time) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.changed.IsZero() || now.Sub(fs.changed) < settled {
		return false
	}
	fs.changed = time.Time{}
	return true
}

// cutQuiet ends an eighth of the flows: those on whose guest's side no byte has moved
// for longest.
func (fs *flows) cutQuiet() {
	type quiet struct {
		f     *flow
		moved int64
	}
	var all []quiet
	fs.mu.Lock()
	for f := range fs.all {
		all = append(all, quiet{f, f.moved.Load()})
	}
	fs.mu.Unlock()
	slices.SortFunc(all, func(a, b quiet) int { return cmp.Compare(a.moved, b.moved) })
	for _, q := range all[:(len(all)+7)/8] {
		q.f.cut(reason.MemoryBudget)
	}
}
