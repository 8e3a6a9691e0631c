package vt

import "time"

// The limits of what passes, but not as often as a guest likes.
const (
	bellsPerSecond = 10
	clipInterval   = time.Second
	noteInterval   = 5 * time.Second
	maxClip        = 64 << 10 // bytes of base64
	maxNote        = 200      // bytes
	maxNoteChunks  = 8        // in which kitty's notifications come
	maxTitle       = 256      // characters
	maxLink        = 2083     // bytes, as browsers have it
	maxColours     = 8 << 10  // bytes of a list of colours
)

type caps struct {
	bells  bells
	clip   spacing
	notes  spacing
	noteID string // of the notification that is being passed in chunks
	chunks int
}

// bells are as many as fit into a second.
type bells struct {
	since time.Time
	n     int
}

func (b *bells) take(now time.Time) bool {
	if now.Sub(b.since) >= time.Second {
		b.since, b.n = now, 0
	}
	b.n++
	return b.n <= bellsPerSecond
}

// spacing is one in an interval.
type spacing struct{ last time.Time }

func (s *spacing) take(now time.Time, interval time.Duration) bool {
	if !s.last.IsZero() && now.Sub(s.last) < interval {
		return false
	}
	s.last = now
	return true
}
