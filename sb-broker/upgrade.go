package main

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/sb-broker/scrub"
)

// judgeUpgrade lets a request for a websocket through where a binding says so, and
// so do those of all credentials that it gets.
func (f *flow) judgeUpgrade(r *http.Request, p plan) refused {
	unbound := slices.ContainsFunc(p, func(b *bound) bool { return !b.Websocket })
	allowed := !unbound && slices.ContainsFunc(f.site.bindings, func(b *bound) bool { return b.Websocket && b.covers(r) })
	if !allowed || f.requests == nil || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.ContentLength != 0 {
		return refused{why: reason.WebsocketUnbound, what: r.Header.Get("Upgrade")}
	}
	return refused{}
}

// switched is called when the server has agreed to a websocket: both sides' bytes
// pass as they are. A credential in the server's cannot be replaced, since the
// length of what it stands in is written before it: it ends the connection.
func (f *flow) switched(res *http.Response) error {
	body, ok := res.Body.(io.ReadWriteCloser)
	if !ok || f.requests == nil || !strings.EqualFold(res.Header.Get("Upgrade"), "websocket") {
		return refusal{refused{reason.WebsocketUnbound, res.Header.Get("Upgrade")}}
	}
	res.Status = "101 Switching Protocols" // which goes out with what the server says behind it
	f.requests.raw()
	f.mu.Lock()
	f.switchedOver = true
	f.mu.Unlock()
	res.Body = struct {
		io.Reader
		io.WriteCloser
	}{&messages{scrub.NewFrames(f.secrets, body), f}, body}
	return nil
}

// messages is what the server says on a websocket.
type messages struct {
	io.Reader
	f *flow
}

// Read implements io.Reader. What must not pass ends the connection.
func (m *messages) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	for _, no := range []struct {
		err error
		why reason.Code
	}{{scrub.ErrSecret, reason.SecretEcho}, {scrub.ErrFrames, reason.EchoUnreadable}} {
		if errors.Is(err, no.err) {
			m.f.say(audit.Deny, no.why, "")
			m.f.cut(no.why)
		}
	}
	return n, err
}
