package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/sb-broker/scrub"
)

// answerer writes an answer of the server's, looked through.
type answerer struct {
	http.ResponseWriter
	f       *flow
	upgrade bool // the request asks for another protocol
	once    sync.Once
}

// Unwrap is for http.ResponseController.
func (a *answerer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answerer) WriteHeader(status int) {
	a.clean()
	h := a.Header()
	if a.upgrade && status >= 200 {
		h.Set("Connection", "close") // what the guest says next would be of another protocol, or not
	}
	for _, name := range []string{"Date", "Content-Type"} {
		if _, ok := h[name]; !ok && status >= 200 {
			h[name] = nil // net/http would make one up
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerer) clean() { a.scrub(a.Header()) }

// scrub looks through fields. One whose name has a secret in it is left out.
func (a *answerer) scrub(h http.Header) {
	set := a.f.secrets()
	for name, values := range h {
		if set.Names(name) {
			delete(h, name)
			a.echoed()
		}
		for i, v := range values {
			if clean, found := set.Replace(v); found {
				values[i] = clean
				a.echoed()
			}
		}
	}
}

// echoed says, once for each answer, that there was a credential in it.
func (a *answerer) echoed() {
	a.once.Do(func() { a.f.say(audit.Note, reason.SecretEcho, "") })
}

// modify looks an answer through, as it passes. Another request may bring a secret
// to the server before it has ended.
func (a *answerer) modify(res *http.Response) error {
	a.scrub(res.Header) // a refusal may repeat one
	if res.StatusCode == http.StatusSwitchingProtocols {
		return a.f.switched(res)
	}
	defer func() { a.scrub(res.Trailer) }() // whose names are announced
	var closed *encoded
	for _, name := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		for _, v := range res.Header.Values(name) {
			if !strings.EqualFold(v, "identity") && v != "" {
				closed = &encoded{res.Body, a.f, refusal{refused{reason.EchoUnreadable, v}}}
			}
		}
	}
	switch {
	case res.Body == http.NoBody || res.Request.Method == http.MethodHead || res.ContentLength == 0:
		return nil
	case closed != nil && !a.f.secrets().Empty():
		return closed.no
	case closed != nil:
		res.Body = closed
		return nil
	}
	return a.look(res)
}

// encoded is a body that cannot be looked through: it ends when there is a secret
// that could be in it.
type encoded struct {
	io.ReadCloser
	f  *flow
	no refusal
}

// Read implements io.Reader.
func (e *encoded) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if !e.f.secrets().Empty() {
		e.f.say(audit.Deny, e.no.why, e.no.what)
		return 0, e.no
	}
	return n, err
}

// look has the body looked through as it passes. A short one keeps a length.
func (a *answerer) look(res *http.Response) error {
	if isText(res.Header) {
		u := newUnsaid(res.Body, a.f)
		u.isShort = !a.f.secrets().Empty() && isShort(res)
		res.Body = u
	}
	reader := scrub.NewReader(a.f.secrets, res.Body, a.echoed)
	if a.f.secrets().Empty() { // its length stays, and is wrong in the end if that does not
		res.Body = lookedThrough{reader, res.Body}
		return nil
	}
	if isShort(res) {
		body, err := io.ReadAll(reader)
		if err != nil {
			return err
		}
		res.ContentLength = int64(len(body))
		res.Header.Set("Content-Length", fmt.Sprint(len(body)))
		res.Body = lookedThrough{bytes.NewReader(body), res.Body}
		return nil
	}
	res.ContentLength = -1
	res.Header.Del("Content-Length")
	res.Body = lookedThrough{reader, res.Body}
	return nil
}

func isShort(res *http.Response) bool {
	return res.ContentLength > 0 && res.ContentLength <= smallAnswer
}

type lookedThrough struct {
	io.Reader
	io.Closer
}

// bufferPool holds what bodies pass through.
type bufferPool struct{ pool sync.Pool }

var buffers = &bufferPool{}

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, bodyBuffer)
}

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }
