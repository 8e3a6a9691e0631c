package hello

import (
	"sb/lib/reason"
	"sb/lib/rule"
)

// Watch looks at what a client sends after its first hello, until the handshake
// is out of sight. A server may ask for a second hello (HelloRetryRequest, RFC
// 8446 section 4.1.4); a lax one might take its name from that, and might skip
// what stands before it.
type Watch struct {
	want  rule.Name
	ech   bool
	early bool
	ccs   bool // a change_cipher_spec came: of TLS 1.2, all that follows is encrypted
	held  []byte
	left  int // bytes of a record that pass as they come
	over  bool
}

// NewWatch expects a second hello, if one comes, to name what the first one did,
// and to be encrypted only if that one was.
func NewWatch(first Hello) *Watch {
	return &Watch{want: first.Name, ech: first.Encrypted, early: first.Early}
}

// Over reports whether nothing more needs to be looked at: the rest of the
// stream passes as it comes.
func (w *Watch) Over() bool { return w.over }

// The other records that a client sends (RFC 8446, section 5.1).
const (
	recordCCS   = 20
	recordAlert = 21
	recordData  = 23
)

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
		n, more, why := w.part(w.held[done:])
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

// part judges what b begins with, a record or the rest of one, and returns how
// much of it passes, or that more bytes are needed. The watch ends with a second
// hello that agrees, or with the first application data, unless early data was
// offered: a server that asks for a second hello skips that (RFC 8446, section
// 4.2.10), and nothing tells it from what follows the handshake. Such a
// connection is watched to its end.
func (w *Watch) part(b []byte) (n int, more bool, why reason.Code) {
	switch {
	case len(b) == 0:
		return 0, true, ""
	case w.left > 0:
		n = min(w.left, len(b))
		w.left -= n
		return n, false, ""
	case b[0] < recordCCS || b[0] > recordData || len(b) > 1 && b[1] != 3:
		return 0, false, reason.HelloMalformed // no record of a handshake
	case len(b) < recordHeader:
		return 0, true, ""
	}
	size := int(b[3])<<8 | int(b[4])
	switch b[0] {
	case recordHandshake:
		return w.handshake(b, size)
	case recordCCS:
		// A client of TLS 1.3 may send one before its second hello, for the sake
		// of old middleboxes (RFC 8446, appendix D.4): one byte, 1.
		switch {
		case size != 1, len(b) > recordHeader && b[recordHeader] != 1:
			return 0, false, reason.HelloMalformed
		case len(b) == recordHeader:
			return 0, true, ""
		}
		w.ccs = true
	case recordData:
		if !w.early {
			w.over = true
			return 0, false, ""
		}
	}
	w.left = size
	return recordHeader, false, ""
}

// handshake tells a second hello, which is in clear, from the other messages of
// a TLS 1.2 handshake, some of which are encrypted.
func (w *Watch) handshake(b []byte, size int) (n int, more bool, why reason.Code) {
	msg := b[recordHeader:min(recordHeader+size, len(b))]
	switch {
	case size == 0:
		return 0, false, reason.HelloMalformed
	case len(msg) < min(size, versionEnd):
		return 0, true, ""
	case !w.mayBeHello(msg):
		w.left = size
		return recordHeader, false, ""
	}
	h, more, why := Parse(b)
	switch {
	case more:
		return 0, true, ""
	case why != "":
		return 0, false, why
	case h.Encrypted && !w.ech:
		return 0, false, reason.SNIEncrypted
	case h.Name != w.want:
		return 0, false, reason.HelloChanged
	}
	w.over = true
	return h.Size, false, ""
}

// versionEnd is where the version ends that follows a hello's type and length.
const versionEnd = 6

// mayBeHello looks at the first bytes of a handshake record. An encrypted message
// of TLS 1.2 has at least 16 bytes, the first of which are as good as random: one
// in eight million looks like a hello of at most 128 KiB here, and is refused. A
// shorter record can only be a piece of one in clear.
func (w *Watch) mayBeHello(msg []byte) bool {
	if msg[0] != typeClientHello {
		return false
	}
	return !w.ccs || len(msg) < versionEnd || msg[1] <= 1 && msg[4] == 3
}
