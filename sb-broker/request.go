package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/sb-broker/scrub"
)

// ServeHTTP answers one request of the guest's.
func (f *flow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	room := f.begin()
	defer f.finish()
	if f.requests != nil {
		http.NewResponseController(w).EnableFullDuplex()
	}
	if f.leaving() {
		f.retire()
		f.answerRefusal(w, r, refused{why: reason.UpstreamFailed})
		return
	}
	p, no := f.site.judge(r, f.port)
	if !room {
		no = refused{why: reason.MemoryBudget}
	}
	if no.why == "" && r.Header.Get("Upgrade") != "" {
		no = f.judgeUpgrade(r, p)
	}
	if no.why == "" {
		no = judgeBody(r, p)
	}
	var values []string
	if no.why == "" {
		var leave func()
		values, leave, no = f.fetch(r, p)
		defer leave()
	}
	if no.why != "" {
		f.refuse(w, r, no)
		return
	}
	f.noteElsewhere(r, p)
	a := &answerer{ResponseWriter: w, f: f, upgrade: r.Header.Get("Upgrade") != ""}
	stop := &stopper{w: w}
	defer stop.leave()
	proxy := httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			f.rewrite(pr, p, values)
			if f.requests == nil && pr.Out.Body != nil {
				pr.Out.Body = &unwanted{ReadCloser: pr.Out.Body, stop: stop}
			}
		},
		Transport:      f.server,
		FlushInterval:  -1,
		ModifyResponse: a.modify,
		ErrorHandler:   f.fail,
		ErrorLog:       log.New(io.Discard, "", 0),
		BufferPool:     buffers,
	}
	proxy.ServeHTTP(a, r)
	a.clean() // trailers
}

// fetch gets the secrets of a plan, as they go into the headers. leave is called
// when the request has been answered.
func (f *flow) fetch(r *http.Request, p plan) (values []string, leave func(), no refused) {
	var used []func()
	leave = func() {
		for _, l := range used {
			l()
		}
	}
	for _, b := range p {
		h := f.b.keeper.get(r.Context(), b.Secret)
		if h.why != "" {
			f.b.warn(b.Secret+h.text, "%s: the credential %s was not put in: %s", f.site.name, b.Secret, h.text)
			return nil, leave, refused{h.why, b.Secret}
		}
		used = append(used, f.b.values.enter(b.Secret, h.value))
		values = append(values, b.value(h.value))
		clear(h.value)
		if f.say(audit.Note, reason.CredentialUsed, b.Secret) != nil {
			return nil, leave, refused{reason.AuditUnavailable, b.Secret}
		}
	}
	return values, leave, refused{}
}

// noteElsewhere says that a placeholder was shown where it is worth nothing.
func (f *flow) noteElsewhere(r *http.Request, p plan) {
	for _, s := range f.b.sites {
		for _, b := range s.bindings {
			for name, all := range r.Header {
				if p.puts(fold(name), b.Placeholder) {
					continue
				}
				for _, v := range all {
					if strings.Contains(v, b.Placeholder) {
						f.say(audit.Note, reason.PlaceholderElsewhere, b.Secret)
						return
					}
				}
			}
		}
	}
}

// overrides are fields by which some servers take another method or path than the
// request's own.
var overrides = []string{"x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-original-url", "x-original-uri", "x-rewrite-url", "x-envoy-original-path", "x-forwarded-method", "x-forwarded-uri", "x-forwarded-path"}

// parts are fields that ask for a part of an answer, or for how it differs from
// another: those cannot be looked through, each for itself.
var parts = []string{"range", "if-range", "request-range", "x-ms-range", "a-im"}

// rewrite makes the request that the server gets.
func (f *flow) rewrite(pr *httputil.ProxyRequest, p plan, values []string) {
	out := pr.Out
	out.URL.Scheme, out.URL.Host = "https", f.site.name
	out.URL.RawQuery = pr.In.URL.RawQuery // as it was sent
	out.Host = strings.ToLower(pr.In.Host)
	out.Trailer = nil // without a body net/http would wait for one
	if len(pr.In.Trailer) > 0 && out.Body != nil {
		out.Trailer = pr.In.Trailer.Clone()
		if len(p) > 0 {
			drop(out.Trailer, overrides)
		}
		out.Body = &trailed{out.Body, pr.In, out.Trailer}
	}
	out.Header.Del("Host")
	trim(out.Header)
	out.Header.Set("Accept-Encoding", "identity") // what comes back is looked through
	for _, name := range []string{"Grpc-Accept-Encoding", "Connect-Accept-Encoding"} {
		if out.Header.Get(name) != "" {
			out.Header.Set(name, "identity")
		}
	}
	out.Header.Del("Sec-Websocket-Extensions")
	for i, b := range p {
		for name := range out.Header {
			if fold(name) == b.header {
				out.Header.Del(name)
			}
		}
		out.Header.Set(b.Header, values[i])
	}
	if !f.secrets().Empty() {
		drop(out.Header, parts)
	}
	if len(p) > 0 {
		drop(out.Header, overrides)
	}
}

// trim takes the blanks around values away: HTTP/2 has them pass, though they are no
// part of a value, and servers differ.
func trim(h http.Header) {
	for _, values := range h {
		for i, v := range values {
			values[i] = strings.Trim(v, " \t")
		}
	}
}

// drop takes fields away, in whatever spelling a server takes for one.
func drop(h http.Header, names []string) {
	for name := range h {
		if slices.Contains(names, fold(name)) {
			delete(h, name)
		}
	}
}

// unwanted is the body of a request by HTTP/2, of which the server may want no more
// once it has answered. A guest that learns it stops in the middle and waits for the
// end of the answer, so whoever waits for its body must not.
type unwanted struct {
	io.ReadCloser
	stop *stopper
}

// Close implements io.Closer. It ends a Read that waits.
func (u *unwanted) Close() error {
	u.stop.reading()
	return u.ReadCloser.Close()
}

// stopper ends what reads a request's body, as long as the request is answered.
type stopper struct {
	mu sync.Mutex
	w  http.ResponseWriter // nil when it has been
}

func (s *stopper) reading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w != nil {
		http.NewResponseController(s.w).SetReadDeadline(time.Unix(1, 0))
	}
}

func (s *stopper) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = nil
}

// secrets is what must not pass to the guest now.
func (f *flow) secrets() *scrub.Set { return f.b.values.of(f.site) }

// trailed is a body behind which trailers come: those that were announced, and
// judged, and no others.
type trailed struct {
	io.ReadCloser
	in        *http.Request
	announced http.Header
}

// Read implements io.Reader.
func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		for name := range t.announced {
			t.announced[name] = t.in.Trailer[name]
		}
		trim(t.announced)
	}
	return n, err
}
