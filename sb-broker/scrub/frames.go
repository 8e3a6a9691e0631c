package scrub

import (
	"encoding/binary"
	"errors"
	"io"
)

// Frames reads what a server sends on a websocket (RFC 6455, section 5.2) and ends
// where there is a secret in it. It cannot be replaced, since the length of what it
// stands in is written before it; and a message may be cut into frames anywhere, so
// that it is looked for in messages, not in what is read.
type Frames struct {
	set  func() *Set
	from io.Reader
	raw  []byte // what was read, and may not all be handed out
	out  int    // how much of raw may be
	err  error

	head    []byte // of a frame, as far as it was read
	left    uint64 // bytes of its content that are to come
	of      *message
	last    bool // frame of its message
	data    message
	control message // may stand between two frames of another
}

// maxHeld is how much may wait for the rest of what may be a secret, in bytes besides
// those of the longest: a server may send pings and empty frames meanwhile.
const maxHeld = 64 << 10

// Why what a server sends on a websocket is not passed on.
var (
	ErrSecret = errors.New("there is a secret in it")
	ErrFrames = errors.New("it is no websocket that can be read")
)

// message is the end of a message's content that may be the beginning of a secret.
type message struct {
	text []byte
	at   []int // where in raw each byte of it stands
}

// NewFrames reads messages from a server. Its Read ends with ErrSecret or ErrFrames
// where one must not be passed on; what was before that has been.
func NewFrames(set func() *Set, from io.Reader) *Frames {
	return &Frames{set: set, from: from}
}

// Read implements io.Reader.
func (f *Frames) Read(p []byte) (int, error) {
	for f.out == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.fill()
	}
	n := copy(p, f.raw[:f.out])
	f.raw = append(f.raw[:0], f.raw[n:]...)
	f.out -= n
	for _, m := range []*message{&f.data, &f.control} {
		for i := range m.at {
			m.at[i] -= n
		}
	}
	return n, nil
}

// fill reads once, and finds out how much of it may be handed out.
func (f *Frames) fill() {
	begin := len(f.raw)
	f.raw = append(f.raw, make([]byte, 4<<10)...)
	n, err := f.from.Read(f.raw[begin:])
	f.raw = f.raw[:begin+n]
	if f.err = f.parse(begin); f.err != nil {
		f.hold()
		return
	}
	if f.err = err; err != nil { // what may begin a secret is none
		f.out = len(f.raw)
		return
	}
	if f.hold(); len(f.raw)-f.out > maxHeld+f.set().reach() {
		f.err = ErrFrames
	}
}

// hold has what may be the beginning of a secret wait.
func (f *Frames) hold() {
	f.out = len(f.raw)
	for _, m := range []*message{&f.data, &f.control} {
		if len(m.at) > 0 {
			f.out = min(f.out, m.at[0])
		}
	}
}

// parse goes on with what stands in raw from there on.
func (f *Frames) parse(at int) error {
	for at < len(f.raw) {
		if f.left == 0 {
			f.head = append(f.head, f.raw[at])
			at++
			if err := f.begin(); err != nil {
				return err
			}
			continue
		}
		n := int(min(f.left, uint64(len(f.raw)-at)))
		if err := f.of.look(f.set(), f.raw[at:at+n], at); err != nil {
			return err
		}
		at += n
		if f.left -= uint64(n); f.left == 0 && f.last {
			*f.of = message{}
		}
	}
	return nil
}

// begin reads the head of a frame, if it is whole.
func (f *Frames) begin() error {
	size := 2
	if len(f.head) >= 2 {
		switch f.head[1] & 0x7f {
		case 126:
			size = 4
		case 127:
			size = 10
		}
		if f.head[0]&0x70 != 0 || f.head[1]&0x80 != 0 {
			return ErrFrames // an extension that was not asked for; a server masks nothing
		}
	}
	if len(f.head) < size {
		return nil
	}
	switch size {
	case 2:
		f.left = uint64(f.head[1])
	case 4:
		f.left = uint64(binary.BigEndian.Uint16(f.head[2:]))
	default:
		f.left = binary.BigEndian.Uint64(f.head[2:])
	}
	f.last = f.head[0]&0x80 != 0
	f.of = &f.data
	if f.head[0]&8 != 0 {
		if f.of = &f.control; !f.last || f.left > 125 {
			return ErrFrames
		}
	}
	f.head = f.head[:0]
	if f.left == 0 && f.last {
		*f.of = message{}
	}
	return nil
}

// look takes a piece of a message's content, which stands in raw at at.
func (m *message) look(set *Set, piece []byte, at int) error {
	if set.Empty() {
		*m = message{}
		return nil
	}
	m.text = append(m.text, piece...)
	for i := range piece {
		m.at = append(m.at, at+i)
	}
	if found, form := set.find(m.text); form != nil {
		m.text, m.at = m.text[found:], m.at[found:]
		return ErrSecret
	}
	sure := len(m.text) - set.unsure(m.text)
	m.text, m.at = append(m.text[:0], m.text[sure:]...), append(m.at[:0], m.at[sure:]...)
	return nil
}
