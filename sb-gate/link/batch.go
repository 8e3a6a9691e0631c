package link

import (
	"bytes"

	"sb/sb-gate/frame"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// maxBatch is how many frames one call to the kernel may carry.
const maxBatch = 64

// maxHead is the size of the largest headers: Ethernet, IPv4 without options,
// TCP with all.
const maxHead = frame.HeaderLen + header.IPv4MinimumSize + header.TCPHeaderMaximumSize

// maxParts is how many parts a frame may have.
const maxParts = 64

// maxSmall is the size of the largest frame that is copied, to wait for others.
const maxSmall = 512

// batch is frames on their way to the machine. They are in parts, so that a
// segment's payload is not copied to be cut.
type batch struct {
	heads []byte   // the headers that were made for them; it is never moved
	small []byte   // frames that were copied; nor is it
	parts [][]byte // of all frames, in their order
	ends  []int    // for each frame, where its parts end
	sent  int      // how many frames the machine has taken
}

func newBatch() *batch {
	return &batch{heads: make([]byte, 0, maxBatch*maxHead), small: make([]byte, 0, maxBatch*maxSmall)}
}

// full says whether it must be written before a frame can be added.
func (b *batch) full() bool { return len(b.ends) == maxBatch }

// add ends a frame whose parts were appended, none of them empty. Very many are
// joined: the kernel takes no more than 1024 (UIO_MAXIOV).
func (b *batch) add() {
	start := 0
	if n := len(b.ends); n > 0 {
		start = b.ends[n-1]
	}
	if parts := b.parts[start:]; len(parts) > maxParts {
		b.parts = append(b.parts[:start], bytes.Join(parts, nil))
	}
	b.ends = append(b.ends, len(b.parts))
}

// copy appends a small frame as one part.
func (b *batch) copy(slices [][]byte) {
	start := len(b.small)
	for _, s := range slices {
		b.small = append(b.small, s...)
	}
	b.parts = append(b.parts, b.small[start:])
}

// frame is the parts of frame i.
func (b *batch) frame(i int) [][]byte {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.parts[start:b.ends[i]]
}

// left is how many frames the machine has not taken.
func (b *batch) left() int { return len(b.ends) - b.sent }

func (b *batch) reset() {
	clear(b.parts) // what they lie in is given back
	b.heads, b.small, b.parts, b.ends, b.sent = b.heads[:0], b.small[:0], b.parts[:0], b.ends[:0], 0
}

// cursor walks over bytes that lie in several slices.
type cursor struct {
	slices [][]byte
	off    int // in the first of them
}

// next appends the slices of the next n bytes to parts.
func (c *cursor) next(parts [][]byte, n int) [][]byte {
	for n > 0 && len(c.slices) > 0 {
		part := c.slices[0][c.off:]
		if len(part) > n {
			part = part[:n]
			c.off += n
		} else {
			c.slices, c.off = c.slices[1:], 0
		}
		if n -= len(part); len(part) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}
