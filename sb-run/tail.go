package main

import (
	"bytes"
	"sync"
)

// tail keeps the last lines of what it is written.
type tail struct {
	mu   sync.Mutex
	last [][]byte
	part []byte // of a line that has not come whole
}

// The bounds of a tail: its lines, and the bytes of each that are kept.
const (
	tailLines = 20
	tailLine  = 300
)

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := b; ; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		t.part = append(t.part, line[:min(len(line), max(0, tailLine-len(t.part)))]...)
		if !whole {
			return len(b), nil
		}
		if len(bytes.TrimSpace(t.part)) > 0 {
			t.last = append(t.last, t.part)
			t.last = t.last[max(0, len(t.last)-tailLines):]
		}
		t.part, rest = nil, after
	}
}

// lines are what is kept, the last one last. They are the guest's bytes.
func (t *tail) lines() (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range append(t.last[:len(t.last):len(t.last)], t.part) {
		if l = bytes.TrimRight(l, "\r"); len(l) > 0 {
			all = append(all, string(l))
		}
	}
	return all
}
