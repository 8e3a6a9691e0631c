package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/http1"
	"sb/lib/reason"
	"sb/lib/rule"
)

// requests is the guest's side of HTTP/1: what net/http reads of it was read before
// by a stricter reader.
type requests struct {
	*tls.Conn
	f      *flow
	stream *http1.Stream

	mu      sync.Mutex
	given   int   // requests that were handed out
	taken   int   // of them, those whose answer is written
	refused error // what comes next is not let through
	isRaw   bool  // it is HTTP no more
}

func newRequests(c *tls.Conn, f *flow) *requests {
	r := &requests{Conn: c, f: f}
	r.stream = http1.NewStream(c, r.judge)
	return r
}

// judge is asked about each head.
func (r *requests) judge(req *http1.Request) error {
	if !isHost(req.Host) {
		return http1.Refused{Code: reason.HTTPMalformed}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given++
	return nil
}

// Read implements net.Conn.
func (r *requests) Read(p []byte) (int, error) {
	r.mu.Lock()
	refused, busy, isRaw := r.refused, r.given > r.taken, r.isRaw
	r.mu.Unlock()
	if refused == nil && isRaw {
		r.stream.Raw()
	}
	if refused == nil {
		n, err := r.stream.Read(p)
		if !errors.As(err, new(http1.Refused)) {
			return n, err
		}
		r.mu.Lock()
		refused, busy = err, r.given > r.taken
		r.refused = err
		r.mu.Unlock()
	}
	switch {
	case r.stream.Broken():
		r.f.end(refused)
		return 0, io.ErrUnexpectedEOF
	case busy:
		return r.listen()
	}
	return 0, r.refuse(refused)
}

// isHost says whether a Host field is a name or an address, perhaps with a port:
// net/http is not asked about another.
func isHost(text string) bool {
	host, port, _ := strings.Cut(text, ":")
	if _, err := netip.ParseAddrPort(text); err == nil {
		return true
	}
	_, bad := strconv.ParseUint("0"+port, 10, 16)
	_, noName := rule.ParseName(host)
	_, noAddr := netip.ParseAddr(strings.Trim(text, "[]"))
	return bad == nil && (noName == nil || noAddr == nil)
}

// end says once why the flow ends, and returns that.
func (f *flow) end(err error) reason.Code {
	var no http1.Refused
	errors.As(err, &no)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == "" {
		f.ended = no.Code
		f.say(audit.Deny, no.Code, "")
	}
	return no.Code
}

// answered is called when the answer to a request has been given.
func (r *requests) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken++
}

// raw has everything pass as it comes, from when nobody reads it any more as HTTP.
func (r *requests) raw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isRaw = true
}

// listen waits for the end of the guest or of the answer that is being given,
// which net/http tells by a deadline. What the guest says meanwhile is lost: its
// next request is refused.
func (r *requests) listen() (int, error) {
	buf := make([]byte, 512)
	for {
		if _, err := r.Conn.Read(buf); err != nil {
			return 0, err
		}
	}
}

// refuse answers a request that net/http never saw.
func (r *requests) refuse(err error) error {
	code := r.f.end(err)
	r.Conn.SetWriteDeadline(time.Now().Add(headTime))
	r.Conn.Write(http1.Forbidden(code, r.f.site.name, ""))
	return io.EOF
}
