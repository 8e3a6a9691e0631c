//go:build linux

package share

import (
	"sync"

	"sb/sb-vm/share/fusewire"
)

// buffer holds a message, or as much of one as is bounded by a length that the
// guest gave.
type buffer struct {
	b    []byte
	size int // what it counts for
}

// buffers lends buffers. Small ones are free; of the rest no more are out than
// maxBuffered bytes, whatever lengths the guest gives: get waits.
type buffers struct {
	mu    sync.Mutex
	freed sync.Cond
	out   int
	pools [3]sync.Pool
}

const maxBuffered = 64 << 20

var bufferSizes = [3]int{4 << 10, 132 << 10, fusewire.MaxMessage}

func newBuffers() *buffers {
	p := &buffers{}
	p.freed.L = &p.mu
	return p
}

// get returns a buffer of n bytes, at most MaxMessage.
func (p *buffers) get(n int) *buffer {
	class := 0
	for n > bufferSizes[class] {
		class++
	}
	size := bufferSizes[class]
	if class > 0 {
		p.mu.Lock()
		for p.out+size > maxBuffered {
			p.freed.Wait()
		}
		p.out += size
		p.mu.Unlock()
	}
	b, _ := p.pools[class].Get().(*buffer)
	if b == nil {
		b = &buffer{b: make([]byte, size), size: size}
	}
	b.b = b.b[:n]
	return b
}

// put takes a buffer back; nil is none.
func (p *buffers) put(b *buffer) {
	if b == nil {
		return
	}
	class := 0
	for b.size > bufferSizes[class] {
		class++
	}
	b.b = b.b[:b.size]
	p.pools[class].Put(b)
	if class > 0 {
		p.mu.Lock()
		p.out -= b.size
		p.freed.Broadcast()
		p.mu.Unlock()
	}
}
