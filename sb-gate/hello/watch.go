package hello

import (
	"sb/lib/reason"
	"sb/lib/rule"
)

// Watch looks at what a client sends after its first hello, until the handshake
// is out of sight. A server may ask for a second hello (HelloRetryRequest, RFC
// 8446 section 4.1.4); a lax one might take its name from that.
type Watch struct {
	want rule.Name
	held []byte
	over bool
}

// NewWatch expects a second hello, if one comes, to name want.
func NewWatch(want rule.Name) *Watch { return &Watch{want: want} }

// Over reports whether nothing more needs to be looked at: the rest of the
// stream passes as it comes.
func (w *Watch) Over() bool { return w.over }

// recordCCS is change_cipher_spec, which a client of TLS 1.3 may send before
// its second hello for the sake of old middleboxes (RFC 8446, appendix D.4).
const recordCCS = 20

// Next takes the client's next bytes and returns those that may be passed on,
// which are some of b and of what was held back before. The bytes are valid
// until the next call.
func (w *Watch) Next(b []byte) (pass []byte, why reason.Code) {
	if w.over {
		return b, ""
	}
	w.held = append(w.held, b...)
	done := 0
	for !w.over {
		n, more, why := w.record(w.held[done:])
		if why != "" {
			return nil, why
		}
		if more {
			break
		}
		done += n
	}
	pass = w.held[:done]
	rest := append([]byte(nil), w.held[done:]...)
	if w.over {
		pass, rest = w.held, nil
	}
	w.held = rest
	return pass, ""
}

// record judges the record that b begins with and returns its length, or that
// more bytes are needed. It ends the watch at the first record that is neither
// a hello nor a change of cipher.
func (w *Watch) record(b []byte) (n int, more bool, why reason.Code) {
	if len(b) == 0 {
		return 0, true, ""
	}
	switch b[0] {
	case recordCCS:
		// Exactly one byte, 1. Anything else is no handshake that goes on.
		const ccs = "\x14\x03\x03\x00\x01\x01"
		if n := min(len(b), len(ccs)); string(b[:n]) != ccs[:n] {
			w.over = true
			return 0, false, ""
		}
		return len(ccs), len(b) < len(ccs), ""
	case recordHandshake:
		return w.handshake(b)
	}
	w.over = true
	return 0, false, ""
}

// handshake tells a second hello, which is in clear, from the other messages of
// a TLS 1.2 handshake, some of which are encrypted.
func (w *Watch) handshake(b []byte) (n int, more bool, why reason.Code) {
	if len(b) < recordHeader {
		return 0, true, ""
	}
	size := int(b[3])<<8 | int(b[4])
	msg := b[recordHeader:min(recordHeader+size, len(b))]
	if len(msg) < min(size, versionEnd) {
		return 0, true, ""
	}
	// An encrypted message of TLS 1.2 has at least 16 bytes, the first of which
	// are as good as random: one in four million looks like a hello here, and
	// is refused. A shorter record can only be a piece of one in clear.
	if size == 0 || msg[0] != typeClientHello || size >= versionEnd && (msg[4] != 3 || msg[5] > 3) {
		w.over = true
		return 0, false, ""
	}
	h, more, why := Parse(b)
	switch {
	case more:
		return 0, true, ""
	case why != "":
		return 0, false, why
	case h.Name != w.want:
		return 0, false, reason.HelloChanged
	}
	w.over = true
	return h.Size, false, ""
}

// versionEnd is where the version ends that follows a hello's type and length.
const versionEnd = 6
