package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/handover"
	"sb/lib/reason"
)

// flow is one connection: TLS with the guest by a certificate of the sandbox's
// authority, TLS with the server, and one protocol on both.
type flow struct {
	b    *broker
	id   uint64
	site *site
	port uint16

	guest    *guestConn
	upstream *serverConn
	secure   *tls.Conn // on upstream
	server   *http.ClientConn
	windows  windows
	requests *requests    // of HTTP/1; nil: it is HTTP/2
	retire   func()       // has the guest open another connection for what it asks next
	limit    atomic.Int64 // requests at a time that the server takes by HTTP/2
	moved    atomic.Int64 // when a byte of the guest's side has, in ns
	closed   chan struct{}
	closing  sync.Once

	mu     sync.Mutex
	ended  reason.Code // why, if not as it should
	active int         // requests that are being answered

	switchedOver bool // to a websocket: its end is no request's
}

// touch notes that a byte has moved.
func (f *flow) touch() { f.moved.Store(time.Now().UnixNano()) }

// say has the gate write a line about the flow. The error is that it was not told.
func (f *flow) say(v audit.Verdict, why reason.Code, what string) error {
	return f.b.wire.Say(handover.Say{ID: f.id, Verdict: v, Reason: why, What: loggable(what)})
}

// loggable is what was refused in the alphabet of the log, that of names, as far as words
// can be: a method's capitals and a blank between words would stand there as \x50 and \x20.
func loggable(what string) string {
	return strings.ReplaceAll(strings.ToLower(what), " ", "-")
}

// cut ends the flow for a reason; the first one counts.
func (f *flow) cut(why reason.Code) {
	f.mu.Lock()
	if f.ended == "" {
		f.ended = why
	}
	f.mu.Unlock()
	f.guest.Conn.Close()
	f.upstream.Conn.Close()
	f.close()
}

func (f *flow) close() { f.closing.Do(func() { close(f.closed) }) }

// begin and finish count the requests that are being answered. False: it is one too
// many.
func (f *flow) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active++
	return f.b.answering.Add(1) <= maxAnswers && !f.b.flows.full()
}

func (f *flow) finish() {
	f.b.answering.Add(-1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active--
}

// guestConn tells when the server of the guest's side is done with it.
type guestConn struct {
	net.Conn
	f *flow
}

// Read implements net.Conn.
func (c *guestConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.f.touch()
	return n, err
}

// Write implements net.Conn.
func (c *guestConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.f.touch()
	return n, err
}

// Close implements net.Conn.
func (c *guestConn) Close() error {
	c.f.mu.Lock()
	if c.f.active > 0 && c.f.ended == "" && !c.f.switchedOver {
		c.f.ended = reason.Reset // the guest left in the middle, or was left
	}
	c.f.mu.Unlock()
	c.f.close()
	return c.Conn.Close()
}

// serverConn is the server's side. A plain end is said to the server; what the
// gate holds of it would keep the connection up.
type serverConn struct {
	net.Conn
	f *flow
}

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.f.mu.Lock()
	plain := c.f.ended == ""
	c.f.mu.Unlock()
	if t, ok := c.Conn.(*net.TCPConn); ok && plain {
		t.CloseWrite()
	}
	return c.Conn.Close()
}

// serve shakes hands with both sides and answers requests until one of them ends.
func (f *flow) serve() reason.Code {
	guest, why := f.shakeApart()
	if why != "" {
		return why
	}
	ctx := context.WithValue(context.Background(), handedKey{}, f.secure)
	server, err := newClient(f.windows, f.protocols()).NewClientConn(ctx, "https", f.site.name+":443")
	if err != nil {
		f.b.warn(f.site.name+" client", "%s: speak HTTP to it: %v", f.site.name, err)
		return reason.UpstreamFailed
	}
	f.server = server
	f.answer(guest)
	server.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != "" {
		return f.ended
	}
	return reason.Done
}

// protocols is the version of HTTP that was agreed on: to be ready for both takes room.
func (f *flow) protocols() *http.Protocols {
	p := new(http.Protocols)
	http2 := f.secure.ConnectionState().NegotiatedProtocol == "h2"
	p.SetHTTP1(!http2)
	p.SetHTTP2(http2)
	return p
}

// shakeApart shakes hands on a stack that ends with it: it is the widest of a flow, and
// would be held as long as the flow is.
func (f *flow) shakeApart() (guest *tls.Conn, why reason.Code) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		guest, why = f.shake()
	}()
	<-done
	return guest, why
}

// shake shakes hands with the guest, and in the middle of it with the server: the
// guest is told yes only by a server that proved the name, and its request is not
// read before that.
func (f *flow) shake() (*tls.Conn, reason.Code) {
	cert, err := f.b.ca.Leaf(f.site.name)
	if cert == nil {
		f.b.warn(f.site.name+" leaf", "%v", err)
		return nil, reason.UpstreamFailed
	}
	f.guest.SetDeadline(time.Now().Add(2 * handshakeTime))
	var why reason.Code
	guest := tls.Server(f.guest, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			var err error
			if f.secure, why, err = f.dial(hello.SupportedProtos); err != nil {
				return nil, err
			}
			return f.b.serverConfig(cert, f.secure.ConnectionState().NegotiatedProtocol), nil
		},
	})
	if err := guest.Handshake(); err != nil {
		if why == "" {
			why = reason.GuestHandshake
		}
		f.say(audit.Deny, why, "")
		return nil, why
	}
	f.guest.SetDeadline(time.Time{})
	return guest, ""
}

// dial shakes hands with the server, by a protocol that the guest speaks too.
func (f *flow) dial(offered []string) (*tls.Conn, reason.Code, error) {
	var protocols []string
	for _, p := range []string{"h2", "http/1.1"} {
		if slices.Contains(offered, p) {
			protocols = append(protocols, p)
		}
	}
	if len(protocols) == 0 {
		protocols = []string{"http/1.1"}
	}
	c := tls.Client(f.upstream, &tls.Config{ServerName: f.site.name, RootCAs: f.b.roots, MinVersion: tls.VersionTLS12, NextProtos: protocols})
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	err := c.HandshakeContext(ctx)
	if err == nil {
		return c, "", nil
	}
	why := reason.UpstreamUnverified
	if errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) || isReset(err) {
		why = reason.UpstreamFailed
	}
	f.b.warn(f.site.name+string(why), "%s: nothing was sent to the server, for it did not prove its name: %v", f.site.name, err)
	return nil, why, err
}

func isReset(err error) bool {
	var op *net.OpError
	var alert tls.AlertError
	return errors.As(err, &op) && !errors.As(err, &alert) && op.Op != "remote error" && op.Op != "local error"
}

type handedKey struct{}

// dialHanded is how the transport gets a connection: it is there already.
func dialHanded(ctx context.Context, _, _ string) (net.Conn, error) {
	c, ok := ctx.Value(handedKey{}).(*tls.Conn)
	if !ok {
		return nil, errors.New("sb-broker dials nothing")
	}
	return c, nil
}

// answer answers the guest's requests until the connection is closed.
func (f *flow) answer(guest *tls.Conn) {
	srv := &http.Server{
		Handler:                      f,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               maxHead,
		Protocols:                    f.protocols(),
		HTTP2:                        f.windows.near(),
		ErrorLog:                     log.New(io.Discard, "", 0),
	}
	var c net.Conn = guest
	if guest.ConnectionState().NegotiatedProtocol != "h2" {
		f.requests = newRequests(guest, f)
		c = f.requests
		srv.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateIdle { // the answer has been written, to its end
				f.requests.answered()
			}
		}
	}
	// A server that has ended answers no more requests: the guest is told so, and
	// asks again on another connection.
	f.retire = sync.OnceFunc(func() { go srv.Shutdown(context.Background()) })
	f.server.SetStateHook(func(s *http.ClientConn) {
		if s.Err() != nil || f.leaving() {
			f.retire()
		}
	})
	l := &oneConn{c: c, closed: f.closed, ended: make(chan struct{})}
	srv.Serve(l)
	if c := l.take(); c != nil {
		c.Close() // the server had ended before it was asked anything
	}
	<-f.closed
}

// leaving says whether a server of HTTP/2 has said that it takes no more requests,
// and goes on answering those that it has.
func (f *flow) leaving() bool {
	if f.requests != nil {
		return false
	}
	free, busy := int64(f.server.Available()), int64(f.server.InFlight())
	if free > 0 {
		f.limit.Store(free + busy)
	}
	return free == 0 && busy < f.limit.Load() && f.server.Err() == nil
}

// oneConn is a listener with one connection, which ends with it.
type oneConn struct {
	mu     sync.Mutex
	c      net.Conn
	closed chan struct{} // with the connection
	ended  chan struct{} // by Close
	once   sync.Once
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.take(); c != nil {
		return c, nil
	}
	select {
	case <-l.closed:
	case <-l.ended:
	}
	return nil, net.ErrClosed
}

func (l *oneConn) take() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.c
	l.c = nil
	return c
}

// Close implements net.Listener. The connection goes on.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }
