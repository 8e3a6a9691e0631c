package main

import (
	"bufio"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"sb/lib/audit"
	"sb/lib/reason"
)

// packings are how compressed bytes begin (RFC 1950, 1952, 8878; the xz file format).
// No text does; of what begins like text ("x^", one of the ways of RFC 1950) nobody
// can tell.
var packings = []string{"\x1f\x8b", "\x78\x01", "\x78\x9c", "\x78\xda", "\x28\xb5\x2f\xfd", "\xfd7zXZ\x00"}

// isText says whether an answer says of itself that it is text, or nothing. A file
// that is compressed is of a type that says so, or of bytes of any kind.
func isText(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err != nil || strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") ||
		slices.Contains([]string{"application/json", "application/x-ndjson", "application/xml", "application/javascript", "application/x-www-form-urlencoded"}, kind)
}

// unsaid is the body of an answer that should be text: where it turns out to be
// compressed, it cannot be looked through, and ends.
type unsaid struct {
	in      *bufio.Reader
	body    io.ReadCloser
	f       *flow
	begun   bool
	packed  bool
	isShort bool // the whole of it is read before there is an answer
}

func newUnsaid(body io.ReadCloser, f *flow) *unsaid {
	return &unsaid{in: bufio.NewReaderSize(body, 16), body: body, f: f}
}

// Read implements io.Reader.
func (u *unsaid) Read(p []byte) (int, error) {
	if !u.begun {
		u.packed, u.begun = u.isPacked(), true
	}
	n, err := u.in.Read(p)
	if u.packed && !u.f.secrets().Empty() {
		no := refused{reason.EchoUnreadable, "not said"}
		if !u.isShort {
			u.f.say(audit.Deny, no.why, no.what)
		}
		return 0, refusal{no}
	}
	return n, err
}

// isPacked waits for no more bytes than it needs to tell.
func (u *unsaid) isPacked() bool {
	for n := 1; ; n++ {
		begin, err := u.in.Peek(n)
		if err != nil {
			return false
		}
		may := false
		for _, p := range packings {
			if strings.HasPrefix(string(begin), p) {
				return true
			}
			may = may || strings.HasPrefix(p, string(begin))
		}
		if !may {
			return false
		}
	}
}

// Close implements io.Closer.
func (u *unsaid) Close() error { return u.body.Close() }
