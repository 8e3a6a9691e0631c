// Package scrub finds secrets in what a server sends and puts their placeholders
// there: as they are, and as base64 (in both alphabets, at any offset), percent
// encoding, JSON, HTML and UTF-16 write them, and that base64 itself.
package scrub

import (
	"bytes"
	"io"
	"slices"
	"strings"
)

// Least is the length of the shortest secret that can be looked for, in bytes.
const Least = 8

// Set is the secrets that are looked for, in all their forms.
type Set struct {
	forms   []form // the longest first, so that none hides within another
	longest int
	begins  [256][]int       // forms by their first byte
	pairs   map[uint16][]int // and by their first two
	shift   []uint8          // by two bytes: how far a match cannot begin before them
	window  int              // bytes of each form that shift is about
}

type form struct{ find, put []byte }

// Pair is a secret and what stands for it.
type Pair struct{ Secret, Placeholder []byte }

// New makes a set. A secret shorter than Least is not looked for.
func New(pairs []Pair) *Set {
	s := &Set{}
	seen := map[string]bool{}
	for _, p := range pairs {
		if len(p.Secret) < Least {
			continue
		}
		s.add(p, seen)
	}
	slices.SortStableFunc(s.forms, func(a, b form) int { return len(b.find) - len(a.find) })
	s.index()
	return s
}

// Empty says that there is nothing to look for.
func (s *Set) Empty() bool { return s == nil || len(s.forms) == 0 }

func (s *Set) add(p Pair, seen map[string]bool) {
	for _, f := range formsOf(p.Secret, p.Placeholder) {
		if len(f.find) < Least || bytes.Equal(f.find, f.put) || seen[string(f.find)] {
			continue
		}
		seen[string(f.find)] = true
		s.forms = append(s.forms, f)
	}
}

// index prepares the search (Wu and Manber, blocks of two bytes).
func (s *Set) index() {
	if len(s.forms) == 0 {
		return
	}
	s.longest = len(s.forms[0].find)
	s.window = min(len(s.forms[len(s.forms)-1].find), 255)
	s.shift = slices.Repeat([]uint8{uint8(s.window - 1)}, 1<<16)
	s.pairs = map[uint16][]int{}
	for k, f := range s.forms {
		s.begins[f.find[0]] = append(s.begins[f.find[0]], k)
		s.pairs[block(f.find, 1)] = append(s.pairs[block(f.find, 1)], k)
		for i := 1; i < s.window; i++ {
			b := block(f.find, i)
			s.shift[b] = min(s.shift[b], uint8(s.window-1-i))
		}
	}
}

// block is the two bytes that end at i.
func block(b []byte, i int) uint16 { return uint16(b[i-1])<<8 | uint16(b[i]) }

// find returns where the first form begins in b, and which.
func (s *Set) find(b []byte) (at int, f *form) {
	for i := s.window - 1; i < len(b); {
		if n := s.shift[block(b, i)]; n > 0 {
			i += int(n)
			continue
		}
		start := i - s.window + 1
		for _, k := range s.pairs[block(b, start+1)] {
			if bytes.HasPrefix(b[start:], s.forms[k].find) {
				return start, &s.forms[k]
			}
		}
		i++
	}
	return 0, nil
}

// unsure is how many bytes at the end of b may be the beginning of a form.
func (s *Set) unsure(b []byte) int {
	for n := min(len(b), s.longest-1); n > 0; n-- {
		end := b[len(b)-n:]
		for _, k := range s.begins[end[0]] {
			if len(s.forms[k].find) <= n {
				break // so are those behind it
			}
			if bytes.HasPrefix(s.forms[k].find, end) {
				return n
			}
		}
	}
	return 0
}

// Replace returns text with every secret replaced, and whether there was one.
func (s *Set) Replace(text string) (string, bool) {
	if s.Empty() || len(text) < s.window {
		return text, false
	}
	out, rest := s.replace([]byte(text))
	if len(rest) == len(text) {
		return text, false
	}
	return string(out), true
}

// reach is the size of the longest that is looked for.
func (s *Set) reach() int {
	if s.Empty() {
		return 0
	}
	return s.longest
}

// Names reports whether name, of a field, has a secret in it, in whatever case: a
// name has none of its own.
func (s *Set) Names(name string) bool {
	if s.Empty() || len(name) < s.window {
		return false
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc(s.forms, func(f form) bool {
		return len(f.find) <= len(name) && strings.Contains(name, strings.ToLower(string(f.find)))
	})
}

// replace returns b with every secret in it replaced, and what of b is behind the
// last one. Without one, both are b itself.
func (s *Set) replace(b []byte) (out, rest []byte) {
	at, f := s.find(b)
	if f == nil {
		return b, b
	}
	for ; f != nil; at, f = s.find(b) {
		out = append(append(out, b[:at]...), f.put...)
		b = b[at+len(f.find):]
	}
	return append(out, b...), b
}

// Reader replaces secrets in what it reads. It holds back no more than what may be
// the beginning of one.
type Reader struct {
	set   func() *Set
	from  io.Reader
	found func()
	buf   []byte // for who reads a little at a time
	held  []byte // the end of what was read, which may be the beginning of a secret
	ready []byte // to be handed out
	err   error
}

// NewReader reads from and calls found when there was a secret in it. What is
// looked for is asked before each look, since more may be sent meanwhile.
func NewReader(set func() *Set, from io.Reader, found func()) *Reader {
	return &Reader{set: set, from: from, found: found}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		b := p // where it is looked at, too
		if need := max(2*r.set().reach(), len(r.held)+512); len(p) < need {
			if len(r.buf) < need {
				r.buf = make([]byte, need)
			}
			b = r.buf
		}
		if r.fill(b); len(r.ready) > 0 && &r.ready[0] == &p[0] {
			n := len(r.ready)
			r.ready = nil
			return n, nil
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// fill reads once into buf, and looks at that and what was held back before it.
func (r *Reader) fill(buf []byte) {
	n := copy(buf, r.held)
	more, err := r.from.Read(buf[n:])
	r.err = err
	all := buf[:n+more]
	set := r.set()
	if set.Empty() {
		r.held, r.ready = r.held[:0], all
		return
	}
	out, rest := set.replace(all)
	if len(rest) < len(all) {
		r.found()
	}
	held := 0
	if err == nil {
		held = set.unsure(rest)
	}
	r.held = append(r.held[:0], rest[len(rest)-held:]...)
	r.ready = out[:len(out)-held]
}
