//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
)

// auditLog is the log, read as it is written.
type auditLog struct {
	mu    sync.Mutex
	lines []audit.Line
	bad   []string
	more  chan struct{} // closed and made anew with each line
	ended chan struct{}
}

func (l *auditLog) read(t *testing.T, r *os.File) {
	l.more, l.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(l.ended)
		defer r.Close()
		for in := bufio.NewScanner(r); in.Scan(); {
			line, err := audit.Parse(in.Bytes())
			l.mu.Lock()
			if err != nil {
				l.bad = append(l.bad, in.Text())
			}
			l.lines = append(l.lines, line)
			close(l.more)
			l.more = make(chan struct{})
			l.mu.Unlock()
		}
	}()
}

func (l *auditLog) wait() {
	if l.ended != nil {
		<-l.ended
	}
}

func (l *auditLog) all() []audit.Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]audit.Line(nil), l.lines...)
}

// String is the log, or the ends of a long one.
func (l *auditLog) String() string {
	const ends = 20
	var b strings.Builder
	all := l.all()
	for i, line := range all {
		if i < ends || i >= len(all)-ends {
			b.WriteString(line.String() + "\n")
		} else if i == ends {
			b.WriteString("…\n")
		}
	}
	return b.String()
}

// matches says whether a line is what a pattern says: fields as in the line, the
// time left out; "*" is any field; words that are not named may be there too.
func matches(line audit.Line, pattern string) bool {
	have := strings.Split(line.String(), " ")[1:]
	want := strings.Fields(pattern)
	for i, w := range want {
		switch {
		case strings.Contains(w, "="):
			k, v, _ := strings.Cut(w, "=")
			if line.Word(k) != v {
				return false
			}
		case i >= len(have) || w != "*" && w != have[i]:
			return false
		}
	}
	return true
}

// count is how many decisions the log has that match, folded ones counted.
func (l *auditLog) count(pattern string) (n int64) {
	for _, line := range l.all() {
		if matches(line, pattern) {
			n += line.Count()
		}
	}
	return n
}

// has waits for a line that matches, and returns it.
func (s *sandbox) has(pattern string) audit.Line {
	s.t.Helper()
	return s.hasN(1, pattern)
}

// hasN waits until n decisions match, folded ones counted, and returns the last
// of their lines. More than n are a fault.
func (s *sandbox) hasN(n int64, pattern string) (last audit.Line) {
	s.t.Helper()
	deadline := time.After(15 * time.Second)
	for {
		s.log.mu.Lock()
		more := s.log.more
		s.log.mu.Unlock()
		got := int64(0)
		for _, line := range s.log.all() {
			if matches(line, pattern) {
				got += line.Count()
				last = line
			}
		}
		if got == n {
			return last
		}
		if got > n {
			s.t.Fatalf("%d of the log are %q, not %d:\n%s", got, pattern, n, s.log.String())
		}
		select {
		case <-more:
		case <-deadline:
			s.t.Fatalf("%d of the log are %q, not %d:\n%s", got, pattern, n, s.log.String())
		}
	}
}

// hasNot says that no line matches, so far.
func (s *sandbox) hasNot(pattern string) {
	s.t.Helper()
	if n := s.log.count(pattern); n != 0 {
		s.t.Errorf("%d of the log are %q", n, pattern)
	}
}

// agrees holds the log to itself: what was opened was closed, once, and each
// close is of something that was opened.
func (l *auditLog) agrees(t *testing.T) {
	for _, b := range l.bad {
		t.Errorf("not an audit line: %q", b)
	}
	balance := map[string]int{}
	for _, line := range l.all() {
		k := fmt.Sprintf("%s %s %s", line.Gate, line.Name, line.Address)
		switch {
		case line.Gate == audit.DNS, line.Gate == audit.Look:
		case line.Verdict == audit.Allow && (line.Gate == audit.TLS || line.Gate == audit.HTTP): // a name of a flow that has lines
		case line.Verdict == audit.Allow, isOpened(line):
			balance[k]++
		case line.Verdict == audit.Close:
			if balance[k]--; balance[k] < 0 {
				t.Errorf("a close of what was not opened: %s", line)
			}
		}
	}
	for k, n := range balance {
		if n != 0 {
			t.Errorf("%d flows to %s have no close line", n, k)
		}
	}
}

// isOpened says whether a dial line is of a connection that was made.
func isOpened(line audit.Line) bool {
	return line.Verdict == audit.Dial && !strings.HasPrefix(string(line.Reason), "connect-") && line.Reason != reason.DescriptorsOut
}
