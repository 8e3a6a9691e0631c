package link

// inboxSize is how many bytes the frames of one call may have together.
const inboxSize = 1 << 20

// inbox is where the frames of one call are read to, each to a place of its own.
type inbox struct {
	frames [][]byte
	vectors
}

// newInbox has room for frames of size bytes, some or many.
func newInbox(size int) *inbox {
	in := &inbox{}
	for range min(maxBatch, max(8, inboxSize/size)) {
		in.frames = append(in.frames, make([]byte, size))
	}
	in.vectors.into(in.frames)
	return in
}
