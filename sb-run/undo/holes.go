package undo

import (
	"bytes"
	"io"
	"os"
	"slices"
)

// holes writes a file, and leaves out the zeros: a file of holes alone, of which a guest
// can make any number at no cost, takes no room in the store either. Without a file
// nothing is written.
type holes struct {
	to   *os.File
	size int64
}

// piece is how much is looked at, and left out, at a time.
const piece = 32 << 10

var zeros [piece]byte

// Write implements io.Writer.
func (h *holes) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, piece) {
		if h.to != nil && !bytes.Equal(part, zeros[:len(part)]) {
			if _, err := h.to.WriteAt(part, h.size); err != nil {
				return n, err
			}
		}
		n += len(part)
		h.size += int64(len(part))
	}
	return n, nil
}

// end makes the file as long as what was written, whatever it ended with.
func (h *holes) end() error {
	if h.to == nil {
		return nil
	}
	if err := h.to.Truncate(h.size); err != nil {
		return err
	}
	_, err := h.to.Seek(0, io.SeekEnd)
	return err
}
