package main

import (
	"cmp"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"sb/lib/reason"
)

// What a guest can make the gate hold is bounded by how much may wait in each
// connection: in most of them little, in a few enough for the fastest wire. A
// guest that fills them all is let open no more, and loses some.
const (
	smallTaken  = 32 << 10  // bytes of the guest's that wait in a connection; fewer make its kernel hesitate
	smallWindow = 8 << 10   // for the guest, and in hand each way
	roomyWindow = 4 << 20   // in one of the first maxRoomy
	roomyBuffer = 256 << 10 // that a roomy one passes at a time
	maxLive     = 400 << 20 // bytes in use, above which no connection is opened and some are reset
	memoryLimit = 512 << 20 // of the process, above which memory is given back before more is taken

	relieveEvery = 100 * time.Millisecond
)

// pool has buffers of one size. One is held only while there is something in it:
// ten thousand idle flows need none.
type pool struct{ free sync.Pool }

func newPool(size int) *pool {
	return &pool{sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

func (p *pool) get() []byte { return *p.free.Get().(*[]byte) }

func (p *pool) put(b []byte) { p.free.Put(&b) }

var (
	roomyBuffers = newPool(roomyBuffer)
	smallBuffers = newPool(smallWindow)
)

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

// relieve keeps what is held below maxLive, until done is closed: connections
// that were opened when there was room can be filled later.
func (fs *flows) relieve(done <-chan struct{}) {
	tick := time.NewTicker(relieveEvery)
	defer tick.Stop()
	var collected time.Time
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			if fs.live() <= maxLive && (takenBytes() <= maxLive || now.Sub(collected) < time.Second) {
				continue
			}
			runtime.GC() // what was closed meanwhile counts no more
			if collected = now; fs.live() > maxLive {
				fs.cutQuiet()
			}
		}
	}
}

// cutQuiet resets an eighth of what is open: that on which no byte has moved for
// longest. What waits is in those, be it for the guest or for a server. Several at
// a time, since each sends a RST on a wire that may be full.
func (fs *flows) cutQuiet() {
	all := fs.all()
	slices.SortFunc(all, func(a, b cutter) int { return cmp.Compare(a.moved(), b.moved()) })
	all = all[:(len(all)+7)/8]
	var cutting sync.WaitGroup
	for part := range slices.Chunk(all, max(1, (len(all)+31)/32)) {
		cutting.Go(func() {
			for _, f := range part {
				f.reset(reason.MemoryBudget)
			}
		})
	}
	cutting.Wait()
}
