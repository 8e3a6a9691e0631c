package vt

import (
	"encoding/binary"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// The bounds of what is kept of a sequence that has not come whole, in bytes. What is
// left out in any case is kept only as far as it takes to name it.
const (
	maxString = 64<<10 + 16 // of an OSC: a clipboard write of 64 KiB and its head
	maxCSI    = 512         // xterm takes 30 parameters
	maxName   = 16
	maxChunk  = 64 << 10 // of a Write that is taken at a time
)

// The controls of ECMA-48 that have a part here.
const (
	enq = 0x05
	bel = 0x07
	so  = 0x0e
	si  = 0x0f
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
)

const replacement = "\ufffd"

// state is what the next byte belongs to.
type state int

const (
	inText state = iota
	inChar       // of UTF-8, not whole
	inEscape
	inEscapeInter // after a byte of 0x20 to 0x2f
	inCSI
	inString
	inStringEscape // an ESC that may be the first half of its end
)

// Filter passes on what may be written to a terminal. It is safe for a Write and a
// Close at a time.
type Filter struct {
	w   io.Writer
	now func() time.Time

	mu     sync.Mutex
	closed bool
	state  state
	part   []byte // what has not come whole; of a sequence from its ESC on
	params []int  // room for those of a CSI
	long   bool   // it has more than that
	out    []byte // of this chunk
	modes  modes
	counts Counts
	caps   caps
}

// New returns a filter that writes to w, whole sequences only. now is the clock of its
// limits, time.Now but in tests.
func New(w io.Writer, now func() time.Time) *Filter {
	return &Filter{w: w, now: now, modes: newModes()}
}

// Write passes b on but for what is left out, and for a sequence or a character that
// is not whole yet. A closed filter takes everything and passes nothing.
func (f *Filter) Write(b []byte) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(b) > 0 {
		chunk := b[:min(len(b), maxChunk)]
		if err := f.chunk(chunk); err != nil {
			return n, err
		}
		n, b = n+len(chunk), b[len(chunk):]
	}
	return n, nil
}

func (f *Filter) chunk(b []byte) error {
	if f.closed {
		return nil
	}
	if f.state == inText {
		if n := text(b); n == len(b) {
			_, err := f.w.Write(b) // most of all there is
			return err
		}
	}
	f.out = f.out[:0]
	f.feed(b)
	return f.flush()
}

func (f *Filter) flush() error {
	if len(f.out) == 0 {
		return nil
	}
	_, err := f.w.Write(f.out)
	return err
}

// Close undoes what the guest left the terminal in, and nothing that it did not. It
// returns what was left out. The writer is not closed.
func (f *Filter) Close() (Counts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.counts, nil
	}
	f.closed = true
	if f.state > inChar {
		f.drop(long)
	}
	f.out = f.modes.reset(nil)
	return f.counts, f.flush()
}

// plain are the bytes of ASCII that are passed without a look.
var plain = func() (t [256]bool) {
	for c := 0x20; c < del; c++ {
		t[c] = true
	}
	for _, c := range "\b\t\n\v\f\r" {
		t[c] = true
	}
	return t
}()

// printable8 reports whether each of eight bytes is in 0x20 to 0x7e.
func printable8(w uint64) bool {
	const each = 0x0101010101010101
	return (w|(w+each)|((w-0x20*each)&^w))&(0x80*each) == 0
}

// text returns how much of b is text that passes as it is: plain bytes and whole
// characters.
func text(b []byte) (i int) {
	for i < len(b) {
		for len(b)-i >= 8 && printable8(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		if i == len(b) {
			break
		}
		if plain[b[i]] {
			i++
			continue
		}
		if b[i] < utf8.RuneSelf {
			return i
		}
		r, n := utf8.DecodeRune(b[i:])
		if n == 1 || r < 0xa0 {
			return i
		}
		i += n
	}
	return i
}

// feed takes bytes in whatever state they come.
func (f *Filter) feed(b []byte) {
	for len(b) > 0 {
		switch f.state {
		case inText:
			b = f.text(b)
		case inString:
			b = f.string(b)
		default:
			if f.step(b[0]) {
				b = b[1:]
			}
		}
	}
}

// text takes text and the byte behind it, and returns the rest.
func (f *Filter) text(b []byte) []byte {
	n := text(b)
	f.out = append(f.out, b[:n]...)
	if b = b[n:]; len(b) == 0 {
		return nil
	}
	switch c := b[0]; {
	case c == esc:
		f.begin(inEscape, esc)
	case c < utf8.RuneSelf:
		f.control(c)
	case !utf8.FullRune(b):
		f.state, f.part = inChar, append(f.part[:0], b...)
		return nil
	default:
		_, n := utf8.DecodeRune(b)
		if n == 2 || c < 0xa0 { // U+0080 to U+009F, or the byte alone
			f.drop(eightBit)
		}
		f.out = append(f.out, replacement...)
		return b[n:]
	}
	return b[1:]
}

// control takes a control byte outside of sequences.
func (f *Filter) control(c byte) {
	switch {
	case c == so || c == si:
		f.modes.shifted(c)
		f.out = append(f.out, c)
	case c == bel && f.caps.bells.take(f.now()):
		f.out = append(f.out, c)
	case c == bel:
		f.drop(bell)
	case c == enq:
		f.drop(answer)
	case c == 0 || c == del:
	default:
		f.drop(other)
	}
}

// begin begins a sequence.
func (f *Filter) begin(s state, first ...byte) {
	f.state, f.long = s, false
	f.part = append(f.part[:0], first...)
}

// end ends a sequence, which is not in part any more.
func (f *Filter) end() {
	f.state, f.long = inText, false
	if cap(f.part) > maxCSI {
		f.part = nil
	}
	f.part = f.part[:0]
}

// step takes a byte of a character or of a sequence, unless it is the first one
// behind it: then it returns false, and the state is another.
func (f *Filter) step(c byte) bool {
	switch {
	case f.state == inChar:
		f.part = append(f.part, c)
		if utf8.FullRune(f.part) {
			var whole [utf8.UTFMax]byte
			n := copy(whole[:], f.part)
			f.end()
			f.feed(whole[:n])
		}
		return true
	case f.state == inStringEscape:
		return f.endString(c)
	case c == esc:
		f.drop(broken)
		f.begin(inEscape, esc)
		return true
	case c < 0x20 || c >= del:
		f.drop(broken)
		f.end()
		return c == can || c == sub // these say that it is broken off
	case f.state == inCSI:
		f.stepCSI(c)
	case c < 0x30:
		f.grow(c, maxName)
		f.state = inEscapeInter
	case f.state == inEscape:
		f.stepEscape(c)
	default:
		f.grow(c, maxName)
		f.escape()
	}
	return true
}

// grow keeps a byte of a sequence.
func (f *Filter) grow(c byte, most int) {
	if len(f.part) >= most {
		f.long = true
		return
	}
	f.part = append(f.part, c)
}

// stepEscape takes the byte behind an ESC.
func (f *Filter) stepEscape(c byte) {
	f.grow(c, maxName)
	switch c {
	case '[':
		f.state = inCSI
	case ']', 'P', '_', '^', 'X', 'k':
		f.state = inString
	default:
		f.escape()
	}
}

func (f *Filter) stepCSI(c byte) {
	f.grow(c, maxCSI)
	if c < 0x40 {
		return
	}
	if f.long {
		f.drop(long)
	} else {
		f.csi()
	}
	f.end()
}

// pass passes a sequence.
func (f *Filter) pass(s ...string) {
	for _, s := range s {
		f.out = append(f.out, s...)
	}
}

// drop counts what is left out.
func (f *Filter) drop(k kind) { f.counts[k]++ }
