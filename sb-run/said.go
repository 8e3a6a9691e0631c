package main

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"sb/lib/say"
)

// said passes on what a child says to people. Its errors and hints it keeps for
// whoever reports the child's end: they are printed once, there.
type said struct {
	name string    // the child's, in front of its messages
	to   io.Writer // stderr

	mu    sync.Mutex
	part  []byte // of a line that has not come whole
	errs  []string
	hints []string
}

// The bounds of what is kept: a line's bytes, the first errors, the last hints
// (which may be the last lines of a console).
const (
	maxSaidLine  = 4096
	maxSaidErrs  = 20
	maxSaidHints = 40
)

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = append(s.part, b...)
	for {
		end := bytes.IndexByte(s.part, '\n')
		skip := 1
		if end < 0 && len(s.part) >= maxSaidLine {
			end, skip = maxSaidLine, 0
		}
		if end < 0 {
			return len(b), nil
		}
		s.line(string(s.part[:end]))
		s.part = s.part[end+skip:]
	}
}

// flush takes what came behind the last line for a line.
func (s *said) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.part) > 0 {
		s.line(string(s.part))
		s.part = nil
	}
}

func (s *said) line(l string) {
	if e, ok := strings.CutPrefix(l, s.name+": error: "); ok {
		if len(s.errs) < maxSaidErrs {
			s.errs = append(s.errs, e)
		}
		return
	}
	if h, ok := strings.CutPrefix(l, s.name+": hint: "); ok {
		s.hints = append(s.hints, h)
		s.hints = s.hints[max(0, len(s.hints)-maxSaidHints):]
		return
	}
	io.WriteString(s.to, say.Safe(l)+"\n")
}

// words are the error that it reported, "" if none, and what it advised.
func (s *said) words() (text string, hints []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.errs, "\n"), append(hints, s.hints...)
}

// withHints is err with those hints.
func withHints(err error, hints []string) error {
	for _, h := range hints {
		err = say.WithHint(err, "%s", h)
	}
	return err
}
