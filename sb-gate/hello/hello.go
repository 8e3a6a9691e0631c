// Package hello reads the TLS ClientHello that a client sends first, to learn
// the name it asks for. It is stricter than any server: what a server might
// take for another name than the one read here is refused.
package hello

import (
	"sb/lib/reason"
	"sb/lib/rule"
)

// The bounds of a hello, in bytes and records. Real ones have about 500 bytes,
// with post-quantum key shares about 1,800.
const (
	MaxMessage = 16 << 10
	MaxRecords = 512
	MaxBytes   = MaxMessage + MaxRecords*recordHeader
)

// From RFC 8446: section 5.1 (records), 4 (handshake messages), 4.2 (extensions).
const (
	recordHeader    = 5
	recordCCS       = 20
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23
	maxRecord       = 16384
	typeClientHello = 1
	extServerName   = 0      // RFC 6066, section 3
	extEarlyData    = 42     // RFC 8446, section 4.2.10
	extECH          = 0xfe0d // RFC 9849: encrypted_client_hello
	extESNI         = 0xffce // its draft before, encrypted_server_name
)

// Hello is what a ClientHello says.
type Hello struct {
	Name      rule.Name // the zero Name: it names none
	Encrypted bool      // it carries ECH, or what looks like it: the true name may be another
	Early     bool      // it offers early data, which may follow it at once
	Size      int       // bytes of the stream that hold it, whole records
}

// Looks reports whether a stream that begins with b may be TLS: true as long as
// nothing speaks against it.
func Looks(b []byte) bool {
	return len(b) > 0 && b[0] == recordHandshake && (len(b) < 2 || b[1] == 3)
}

// Parse reads a hello from the beginning of b. It returns more = true while b
// is the beginning of a good one, and otherwise the hello, or the reason why
// it is refused (then the Size is not set). Whether an encrypted one may pass is
// for the caller to say.
func Parse(b []byte) (h Hello, more bool, why reason.Code) {
	msg, size, more, why := message(b)
	if more || why != "" {
		return Hello{}, more, why
	}
	if h, why = body(msg); why != "" {
		return Hello{}, false, why
	}
	h.Size = size
	return h, false, ""
}

// message joins the records that hold the first handshake message, and returns
// its body and how many bytes of b they take.
func message(b []byte) (msg []byte, size int, more bool, why reason.Code) {
	whole := make([]byte, 0, 2048)
	need := 4 // a handshake message's type and length
	for records := 0; len(whole) < need; records++ {
		if records == MaxRecords {
			return nil, 0, false, reason.HelloTooLong
		}
		rest := b[size:]
		if len(rest) < recordHeader {
			return nil, 0, plausible(rest), malformedUnless(plausible(rest))
		}
		n := int(rest[3])<<8 | int(rest[4])
		if !plausible(rest) || n == 0 || n > maxRecord {
			return nil, 0, false, reason.HelloMalformed
		}
		part := rest[recordHeader:min(recordHeader+n, len(rest))]
		whole = append(whole, part...)
		if len(whole) >= 4 {
			need = 4 + (int(whole[1])<<16 | int(whole[2])<<8 | int(whole[3]))
		}
		switch {
		case len(whole) > 0 && whole[0] != typeClientHello:
			return nil, 0, false, reason.HelloMalformed
		case need > 4+MaxMessage:
			return nil, 0, false, reason.HelloTooLong
		case len(whole) > need:
			// Nothing may follow a hello in its record: a client says no more
			// before the server has answered.
			return nil, 0, false, reason.HelloMalformed
		case len(part) < n:
			return nil, 0, true, ""
		}
		size += recordHeader + n
	}
	return whole[4:], size, false, ""
}

// plausible reports whether b begins, as far as it goes, like a record of a
// hello: a handshake record of version 3.1 to 3.3. (A first hello says 3.1, a
// second one after a HelloRetryRequest 3.3.)
func plausible(b []byte) bool {
	return (len(b) < 1 || b[0] == recordHandshake) && (len(b) < 2 || b[1] == 3) && (len(b) < 3 || b[2] >= 1 && b[2] <= 3)
}

func malformedUnless(ok bool) reason.Code {
	if ok {
		return ""
	}
	return reason.HelloMalformed
}

// cursor reads the parts of a message; once something is missing, all that
// follows is empty and bad stays true.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	part := c.b[:n]
	c.b = c.b[n:]
	return part
}

func (c *cursor) number(bytes int) (n int) {
	for _, x := range c.take(bytes) {
		n = n<<8 | int(x)
	}
	return n
}

// vector takes a length of that many bytes, and what it counts.
func (c *cursor) vector(lengthBytes int) []byte { return c.take(c.number(lengthBytes)) }

// body reads the ClientHello itself: RFC 8446, section 4.1.2.
func body(msg []byte) (h Hello, why reason.Code) {
	c := &cursor{b: msg}
	version := c.number(2)
	c.take(32)
	session, suites, compressions := c.vector(1), c.vector(2), c.vector(1)
	extensions := cursor{b: c.vector(2)}
	if c.bad || len(c.b) != 0 || version < 0x0301 || version > 0x0303 ||
		len(session) > 32 || len(suites) < 2 || len(suites)%2 != 0 || len(compressions) < 1 {
		// A hello may end before its extensions. It then names no server, and
		// no client of this century sends one.
		return Hello{}, reason.HelloMalformed
	}
	seen := map[int]bool{}
	draft := false
	for len(extensions.b) > 0 {
		typ, data := extensions.number(2), extensions.vector(2)
		if extensions.bad || seen[typ] {
			return Hello{}, reason.HelloMalformed
		}
		seen[typ] = true
		switch typ {
		case extServerName:
			if h.Name, why = serverName(data); why != "" {
				return Hello{}, why
			}
		case extEarlyData:
			h.Early = true
		case extECH:
			h.Encrypted = true
		case extESNI:
			draft = true
		}
	}
	if draft { // no browser sends it any more
		return Hello{}, reason.SNIEncrypted
	}
	return h, ""
}

// serverName reads the extension of RFC 6066: a list that must hold exactly one
// entry, of type host_name.
func serverName(data []byte) (rule.Name, reason.Code) {
	c := &cursor{b: data}
	list := &cursor{b: c.vector(2)}
	typ, host := list.number(1), list.vector(2)
	if c.bad || list.bad || len(c.b) != 0 || len(list.b) != 0 || typ != 0 {
		return rule.Name{}, reason.SNIMalformed
	}
	name, err := rule.ParseName(string(host))
	if err != nil {
		return rule.Name{}, reason.SNIMalformed
	}
	return name, ""
}
