package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sb/lib/binding"
	"sb/lib/fd"
	"sb/lib/handover"

	"golang.org/x/sys/unix"
)

const (
	apiName     = "api.example"
	secret      = "sk-real-Zk3vQ8sLw0XyTn5RbJ7hUeAqGf"
	placeholder = "sk-ant-holder-0123456789abcdef"
)

// anthropic is a binding as of a key in a header of its own.
func anthropic() binding.Binding {
	return binding.Binding{Secret: "anthropic", Variable: "ANTHROPIC_API_KEY", Hosts: []string{apiName}, Header: "x-api-key", Format: "{}", Placeholder: placeholder}
}

func bearer() binding.Binding {
	b := anthropic()
	b.Secret, b.Header, b.Format = "openai", "authorization", "Bearer {}"
	return b
}

// world is a broker, the gate's end of its wire, a keeper and the servers that
// names lead to.
type world struct {
	t      testing.TB
	b      *broker
	wire   *handover.Wire
	trust  *x509.CertPool // what the guest trusts: the sandbox's authority
	server *httptest.Server
	hands  *hands
	port   uint16        // that the guest dialled
	pem    []byte        // trust as a file
	held   atomic.Uint64 // what the broker has in use

	mu      sync.Mutex
	next    uint64
	secrets map[string]string // "" is an error
	asked   int
	said    []string
	ends    map[uint64]chan string
	more    chan struct{}
}

// hands is what the servers saw.
type hands struct {
	mu   sync.Mutex
	reqs []*http.Request
}

func (h *hands) all() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*http.Request(nil), h.reqs...)
}

func (h *hands) last(t testing.TB) *http.Request {
	t.Helper()
	all := h.all()
	if len(all) == 0 {
		t.Fatal("the server got no request")
	}
	return all[len(all)-1]
}

// start runs a broker with a server that handler answers for.
func start(t testing.TB, handler http.HandlerFunc, bindings ...binding.Binding) *world {
	t.Helper()
	return startTLS(t, &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, handler, bindings...)
}

// startTLS is start with a server of another kind.
func startTLS(t testing.TB, config *tls.Config, handler http.HandlerFunc, bindings ...binding.Binding) *world {
	t.Helper()
	w := &world{t: t, port: 443, hands: &hands{}, secrets: map[string]string{"anthropic": secret, "openai": secret}, ends: map[uint64]chan string{}, more: make(chan struct{})}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.hands.mu.Lock()
		w.hands.reqs = append(w.hands.reqs, r)
		w.hands.mu.Unlock()
		handler(rw, r)
	}))
	w.server.EnableHTTP2 = slices.Contains(config.NextProtos, "h2")
	w.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if w.server.TLS = config; config.Certificates == nil {
		config.Certificates = []tls.Certificate{theWorld().certificate(apiName, "other.example", "api2.example")}
	}
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	b, err := newBroker(bindings, theWorld().pool)
	if err != nil {
		t.Fatal(err)
	}
	w.b, b.flows.live = b, w.held.Load
	gates, brokers := pair(t, "broker", fd.Dgram)
	keepers, mine := pair(t, "secrets", fd.Stream)
	leash, farLeash := pair(t, "leash", fd.Stream)
	ready, farReady := pair(t, "ready", fd.Stream)
	caR, caW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if w.wire, err = handover.New(gates); err != nil {
		t.Fatal(err)
	}
	go w.listen()
	go w.keep(keepers)
	done := make(chan error, 1)
	go func() {
		done <- b.serve(wires{broker: brokers, secrets: mine, caOut: caW, ready: farReady, leash: farLeash})
	}()
	text, err := io.ReadAll(caR)
	if err != nil {
		t.Fatal(err)
	}
	w.pem, w.trust = text, x509.NewCertPool()
	if !w.trust.AppendCertsFromPEM(text) || strings.Contains(string(text), "PRIVATE") {
		t.Fatalf("the certificate is %q", text)
	}
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("not ready: %q %v", line, err)
	}
	t.Cleanup(func() {
		leash.Close()
		if err := <-done; err != nil {
			t.Errorf("the broker ended: %v", err)
		}
		w.wire.Close()
	})
	return w
}

func pair(t testing.TB, name string, kind fd.Kind) (near, far *os.File) {
	t.Helper()
	near, far, err := fd.Pair(name, kind)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{near, far} {
		unix.SetNonblock(int(f.Fd()), true)
	}
	if near, err = again(near); err == nil {
		far, err = again(far)
	}
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

// again is the same descriptor as a file that the runtime polls.
func again(f *os.File) (*os.File, error) {
	n, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	name := f.Name()
	f.Close()
	unix.SetNonblock(n, true)
	return os.NewFile(uintptr(n), name), nil
}

// keep plays the keeper.
func (w *world) keep(f *os.File) {
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		name, _ := strings.CutPrefix(in.Text(), "get ")
		w.mu.Lock()
		value, ok := w.secrets[name]
		w.asked++
		w.mu.Unlock()
		if !ok || value == "" {
			fmt.Fprintf(f, "error locked the keychain is locked\n")
			continue
		}
		fmt.Fprintf(f, "value %d\n%s", len(value), value)
	}
}

// listen takes what the broker says to the gate.
func (w *world) listen() {
	for {
		rec, err := w.wire.Next()
		if err != nil {
			return
		}
		w.mu.Lock()
		switch rec := rec.(type) {
		case handover.Say:
			what := rec.What
			if what == "" {
				what = "-"
			}
			w.said = append(w.said, fmt.Sprintf("%s %s %s", rec.Verdict, rec.Reason, what))
		case handover.End:
			w.ends[rec.ID] <- string(rec.Reason)
		}
		close(w.more)
		w.more = make(chan struct{})
		w.mu.Unlock()
	}
}

// has waits for a line.
func (w *world) has(line string) {
	w.t.Helper()
	late := time.After(10 * time.Second)
	for {
		w.mu.Lock()
		said, more := append([]string(nil), w.said...), w.more
		w.mu.Unlock()
		for _, s := range said {
			if s == line {
				return
			}
		}
		select {
		case <-more:
		case <-late:
			w.t.Fatalf("it did not say %q but %q", line, said)
		}
	}
}

func (w *world) hasNot(line string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.said {
		if strings.HasPrefix(s, line) {
			w.t.Errorf("it said %q", s)
		}
	}
}

// handed is a connection that was handed over, and how it ends.
type handed struct {
	net.Conn
	end      chan string
	upstream net.Conn
}

// hand opens a connection to the server at addr and hands it over as one for name.
func (w *world) hand(name, addr string) *handed {
	w.t.Helper()
	up, err := net.Dial("tcp", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	near, far, err := fd.Pair("guest", fd.Stream)
	if err != nil {
		w.t.Fatal(err)
	}
	file, err := up.(*net.TCPConn).File()
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.next++
	id, end := w.next, make(chan string, 1)
	w.ends[id] = end
	w.mu.Unlock()
	if err := w.wire.Hand(id, name, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), w.port), int(far.Fd()), int(file.Fd())); err != nil {
		w.t.Fatal(err)
	}
	far.Close()
	file.Close()
	c, err := net.FileConn(near)
	if err != nil {
		w.t.Fatal(err)
	}
	near.Close()
	c.SetDeadline(time.Now().Add(40 * time.Second))
	w.t.Cleanup(func() { c.Close(); up.Close() })
	return &handed{c, end, up}
}

func (w *world) addr() string { return w.server.Listener.Addr().String() }

// guest is TLS as the guest speaks it.
func (w *world) guest(protocols ...string) *tls.Conn {
	w.t.Helper()
	c := tls.Client(w.hand(apiName, w.addr()), &tls.Config{ServerName: apiName, RootCAs: w.trust, NextProtos: protocols})
	if err := c.Handshake(); err != nil {
		w.t.Fatalf("handshake: %v", err)
	}
	return c
}

// client is an HTTP client in the guest that dials through the broker.
func (w *world) client(http2 bool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetHTTP2(http2)
	tr := &http.Transport{
		Protocols:          p,
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{RootCAs: w.trust},
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr)
			return w.hand(host, w.addr()), nil
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// answered is an answer that was read to its end.
type answered struct {
	status int
	header http.Header
	body   string
	proto  int
	last   bool // of its connection
}

func (w *world) ask(c *http.Client, req *http.Request) answered {
	w.t.Helper()
	res, err := c.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: body: %v", req.Method, req.URL, err)
	}
	return answered{res.StatusCode, res.Header, string(body), res.ProtoMajor, res.Close}
}

// request is one with the placeholder where anthropic's goes.
func request(method, path string, body io.Reader, fields ...string) *http.Request {
	r, err := http.NewRequest(method, "https://"+apiName+path, body)
	if err != nil {
		panic(err)
	}
	r.Header.Set("X-Api-Key", placeholder)
	for i := 0; i < len(fields); i += 2 {
		r.Header[fields[i]] = append(r.Header[fields[i]], fields[i+1])
	}
	return r
}

// both runs a test by each version of HTTP.
func both(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Run("http1", func(t *testing.T) { test(t, false) })
	t.Run("http2", func(t *testing.T) { test(t, true) })
}

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
