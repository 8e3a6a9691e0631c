//go:build linux

package share

import (
	"sync"
	"time"
)

// moves are the renames under way for the guest. Between the host's rename and
// ours a file is not where it is known to be; who misses one waits.
type moves struct {
	mu    sync.Mutex
	going int
	ended uint64
	end   chan struct{} // closed when the next one ends
}

func newMoves() *moves { return &moves{end: make(chan struct{})} }

// do runs a rename, move, and then known, which tells the table of nodes.
func (m *moves) do(move func() error, known func()) error {
	m.mu.Lock()
	m.going++
	m.mu.Unlock()
	err := move()
	if err == nil {
		known()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.going--
	m.ended++
	close(m.end)
	m.end = make(chan struct{})
	return err
}

// now is what wait compares with. It must be taken before a file's name is.
func (m *moves) now() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// wait tells whether a rename could be why a file was missed that was looked for
// at the time since; if one is under way it waits for an end, but not long.
func (m *moves) wait(since uint64) bool {
	m.mu.Lock()
	ended, going, end := m.ended, m.going, m.end
	m.mu.Unlock()
	if ended != since {
		return true
	}
	if going == 0 {
		return false
	}
	select {
	case <-end:
		return true
	case <-time.After(trust):
		return false
	}
}
