package link

import "gvisor.dev/gvisor/pkg/buffer"

// inboxSize is how many bytes the frames of one call may have together.
const inboxSize = 1 << 20

// inbox is where the frames of one call are read to, each to a place of its own.
type inbox struct {
	size   int            // of a place
	places []*buffer.View // nil: what was read to it is the stack's now
	vectors
}

// newInbox has room for frames of size bytes, some or many.
func newInbox(size int) *inbox {
	in := &inbox{size: size, places: make([]*buffer.View, min(maxBatch, max(8, inboxSize/size)))}
	in.vectors.room(len(in.places))
	in.refill()
	return in
}

// refill makes the places that are missing.
func (in *inbox) refill() {
	for i, v := range in.places {
		if v == nil {
			v = buffer.NewView(in.size)
			v.Grow(in.size)
			in.places[i] = v
			in.vectors.into(i, v.AsSlice())
		}
	}
}
