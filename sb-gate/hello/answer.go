package hello

import "bytes"

// MaxAnswer bounds what is kept of a server's answer, in bytes: the beginning of
// a ServerHello takes 43, in records of one byte six times as many.
const MaxAnswer = 1 << 10

const (
	typeServerHello = 2
	randomStart     = 6 // behind a hello's type, length and version
	randomEnd       = randomStart + 32
)

// retryRandom makes a ServerHello a HelloRetryRequest (RFC 8446, section 4.1.3).
const retryRandom = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"

// Served reports whether a server whose bytes begin with b has taken the hello
// that it got: it answers with a ServerHello that is no HelloRetryRequest, and no
// server takes a hello in clear after that. More bytes are needed while more is
// true. Whatever else a server says leaves it open what it would take.
func Served(b []byte) (served, more bool) {
	short := len(b) < MaxAnswer
	var msg []byte
	for len(msg) < randomEnd {
		switch {
		case len(b) > 0 && b[0] != recordHandshake && b[0] != recordAlert, len(b) > 1 && b[1] != 3:
			return false, false
		case len(b) < recordHeader:
			return false, short
		}
		n := int(b[3])<<8 | int(b[4])
		part := b[recordHeader:min(recordHeader+n, len(b))]
		// A warning may stand before the hello, and in no other place.
		if n == 0 || n > maxRecord || b[0] == recordAlert && len(msg) > 0 {
			return false, false
		}
		if b[0] == recordHandshake {
			msg = append(msg, part...)
		}
		if len(part) < n && len(msg) < randomEnd {
			return false, short
		}
		b = b[recordHeader+len(part):]
	}
	return msg[0] == typeServerHello && !bytes.Equal(msg[randomStart:randomEnd], []byte(retryRandom)), false
}
