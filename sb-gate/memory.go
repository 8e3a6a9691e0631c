package main

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// What a guest can make the gate hold is bounded by how much may wait in each
// connection: in most of them little, in a few enough for the fastest wire. A
// guest that fills them all is let open no more.
const (
	smallWindow = 32 << 10  // bytes that wait in a connection, each way and on each side of the gate
	roomyWindow = 1 << 20   // in one of the first maxRoomy
	roomyBuffer = 256 << 10 // that a roomy one passes at a time
	maxLive     = 384 << 20 // bytes held, above which no connection is opened
	memoryLimit = 512 << 20 // of the process, above which memory is given back before more is taken
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

// liveBytes returns a function that says how many bytes the last collection found
// in use, looked up as often as they can have changed much. If they are too many
// there is a new collection, since what was closed meanwhile counts no more.
func liveBytes() func() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var looked, collected time.Time
	return func() uint64 {
		now := time.Now()
		if now.Sub(looked) > 20*time.Millisecond {
			looked = now
			metrics.Read(sample)
		}
		live := sample[0].Value.Uint64()
		if live > maxLive && now.Sub(collected) > time.Second {
			collected = now
			go runtime.GC()
		}
		return live
	}
}
