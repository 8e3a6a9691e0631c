package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"sb/lib/audit"
	"sb/lib/fd"
	"sb/lib/say"
)

// splitter cuts what is written to it into lines. Of a line that is longer than
// an audit line can be it keeps the beginning, enough to be told that it is none.
type splitter struct {
	name    string // of the file, for messages
	each    func(origin string, line []byte) error
	n       int // lines so far
	partial []byte
}

func (s *splitter) Write(p []byte) (int, error) {
	size := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		room := audit.MaxLine + 1 - len(s.partial)
		s.partial = append(s.partial, line[:min(len(line), room)]...)
		if !whole {
			break
		}
		if err := s.flush(); err != nil {
			return 0, err
		}
		p = rest
	}
	return size, nil
}

func (s *splitter) flush() error {
	s.n++
	line := s.partial
	s.partial = s.partial[:0]
	return s.each(fmt.Sprintf("%s:%d", s.name, s.n), line)
}

// end takes the last line, if it has no newline.
func (s *splitter) end() error {
	if len(s.partial) == 0 {
		return nil
	}
	return s.flush()
}

// pollEvery is how often a followed file is looked at.
const pollEvery = 100 * time.Millisecond

// follow prints the file and what is added to it until ctx ends or nobody reads
// any more. Where another file takes its name, it reads the old one to its end
// and goes on with the new one; where it becomes shorter, from its beginning. A
// line is printed when its newline is there.
func (p *printer) follow(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("follow the log: %w", err)
	}
	defer func() { f.Close() }()
	s := &splitter{name: name, each: p.line}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := p.catchUp(s, f); err != nil {
			return err
		}
		if p.untilEnd && p.ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if fd.Unread(os.Stdout) {
			return nil
		}
		next, err := s.turn(f)
		if err != nil {
			return err
		}
		if next != nil {
			// The writer may have gone on with the old file until it made the new one.
			err := p.catchUp(s, f)
			f.Close()
			f = next
			if err != nil {
				return err
			}
			s.restart("was replaced")
		}
	}
}

// catchUp prints what can be read now.
func (p *printer) catchUp(s *splitter, f *os.File) error {
	if _, err := io.Copy(s, f); err != nil {
		return fmt.Errorf("follow the log %s: %w", s.name, err)
	}
	return p.end()
}

// turn looks whether the file is still the one of that name, and returns the new
// one if not. A file that was made shorter it rewinds.
func (s *splitter) turn(f *os.File) (*os.File, error) {
	now, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("follow the log: %w", err)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err == nil && now.Size() < at {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("follow the log: %w", err)
		}
		s.restart("was cut")
	}
	if there, err := os.Stat(s.name); err != nil || os.SameFile(now, there) {
		return nil, nil // err: it was renamed, and the new one is not there yet
	}
	next, err := os.Open(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("follow the log: %w", err)
	}
	return next, nil
}

// restart begins with line 1 of another content.
func (s *splitter) restart(why string) {
	if len(s.partial) > 0 {
		say.Warn("%s:%d: the file %s within a line", s.name, s.n+1, why)
	}
	s.n, s.partial = 0, s.partial[:0]
}
