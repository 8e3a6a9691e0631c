package hello

import (
	"sb/lib/reason"
	"sb/lib/rule"
)

// Watch looks at what a client sends after its first hello, until no second one
// can follow. A server may ask for a second hello (HelloRetryRequest, RFC 8446
// section 4.1.4), and what it takes for one is its own affair: of any version, of
// any length, behind messages that it skips. So what may pass depends on what it
// said. Before it said anything, only what may stand before its answer: early
// data, if that was offered, a change_cipher_spec and an alert. After it took the
// hello, everything but another one. After anything else, what may pass before it
// said anything, and then a hello that agrees with the first.
type Watch struct {
	want     rule.Name
	ech      bool
	early    bool
	answered bool // Answered was called
	served   bool // the server took the first hello
	ccs      bool // a change_cipher_spec came after that: of TLS 1.2, all that follows is encrypted
	held     []byte
	left     int  // bytes of a record that pass as they come
	clear    bool // they are of messages in clear
	clears   messages
	waits    bool
	over     bool
}

// NewWatch expects a second hello, if one comes, to name what the first one did,
// and to be encrypted only if that one was.
func NewWatch(first Hello) *Watch {
	return &Watch{want: first.Name, ech: first.Encrypted, early: first.Early}
}

// Over reports whether nothing more needs to be looked at: the rest of the
// stream passes as it comes.
func (w *Watch) Over() bool { return w.over }

// Waits reports whether nothing more passes before Answered was called; Next is to
// be called with no bytes after it.
func (w *Watch) Waits() bool { return w.waits && !w.answered }

// Answered tells what the server said, as Served has it. A server that ended, or
// of which more was needed than there is, has not served.
func (w *Watch) Answered(served bool) { w.answered, w.served = true, served }

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
// much of it passes, or that more bytes, or the server's answer, are needed.
func (w *Watch) part(b []byte) (n int, more bool, why reason.Code) {
	switch {
	case len(b) == 0:
		return 0, true, ""
	case w.left > 0:
		n = min(w.left, len(b))
		w.left -= n
		if w.clear && !w.clears.pass(b[:n]) {
			return 0, false, reason.HelloChanged
		}
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
	case recordData:
		return w.data(size)
	case recordAlert:
		if size != 2 && !w.served { // as long as it is in clear
			return 0, false, reason.HelloMalformed
		}
	case recordCCS:
		// A client of TLS 1.3 may send one before its second hello or its early
		// data, for the sake of old middleboxes (RFC 8446, appendix D.4): one
		// byte, 1.
		switch {
		case size != 1, len(b) > recordHeader && b[recordHeader] != 1:
			return 0, false, reason.HelloMalformed
		case len(b) == recordHeader:
			return 0, true, ""
		}
		w.ccs = w.served
	}
	return w.take(size, false)
}

// take passes a record, its bytes as they come.
func (w *Watch) take(size int, clear bool) (n int, more bool, why reason.Code) {
	w.left, w.clear = size, clear
	return recordHeader, false, ""
}

// wait leaves a record until the server has answered.
func (w *Watch) wait() (n int, more bool, why reason.Code) {
	w.waits = true
	return 0, true, ""
}

// data judges application data. A client whose hello was taken is past the part of
// its handshake that is in clear. Before that it is early data: a server that asks
// for a second hello skips it (RFC 8446, section 4.2.10).
func (w *Watch) data(size int) (n int, more bool, why reason.Code) {
	switch {
	case w.served:
		w.over = true
		return 0, false, ""
	case w.early:
		return w.take(size, false)
	case !w.answered:
		return w.wait()
	}
	return 0, false, reason.HelloChanged
}

// handshake judges a handshake record: before the server has taken the first
// hello, it can only begin a second one.
func (w *Watch) handshake(b []byte, size int) (n int, more bool, why reason.Code) {
	switch {
	case !w.answered:
		return w.wait()
	case w.served:
		return w.flight(b, size)
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

// flight passes a handshake record of TLS 1.2, whose first messages are in clear
// and the others encrypted. An encrypted one has at least 16 bytes, the first of
// which are as good as random: one in eight million looks like a hello of at most
// 128 KiB here, and is refused. A shorter record can only be a piece of one in
// clear.
func (w *Watch) flight(b []byte, size int) (n int, more bool, why reason.Code) {
	msg := b[recordHeader:min(recordHeader+size, len(b))]
	switch {
	case size == 0:
		return 0, false, reason.HelloMalformed
	case len(msg) < min(size, versionEnd):
		return 0, true, ""
	case w.ccs && msg[0] == typeClientHello && (len(msg) < versionEnd || msg[1] <= 1 && msg[4] == 3):
		return 0, false, reason.HelloChanged
	}
	return w.take(size, !w.ccs)
}

// messages finds where handshake messages in clear begin, in records of any size.
type messages struct {
	head int // what has come of a type and a length
	have int // bytes of it
	left int // bytes of a message that are to come
}

// pass reports whether no message that begins in b is a ClientHello.
func (m *messages) pass(b []byte) bool {
	for len(b) > 0 {
		if n := min(m.left, len(b)); n > 0 {
			m.left, b = m.left-n, b[n:]
			continue
		}
		if m.have == 0 && b[0] == typeClientHello {
			return false
		}
		m.head, m.have, b = m.head<<8|int(b[0]), m.have+1, b[1:]
		if m.have == 4 {
			*m = messages{left: m.head & 0xffffff}
		}
	}
	return true
}
