//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/binding"
	"sb/lib/fd"
	"sb/lib/say"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

const (
	realKey = "sk-real-Zk3vQ8sLw0XyTn5RbJ7hUeAqGf"
	fakeKey = "sk-ant-holder-0123456789abcdef"
)

func bindingOf(name string) binding.Binding {
	return binding.Binding{Secret: "key", Hosts: []string{name}, Header: "x-api-key", Format: "{}", Placeholder: fakeKey}
}

// brokerProgram is sb-broker, built once.
var brokerProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sb-broker-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir, "../sb-broker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return filepath.Join(dir, "sb-broker"), nil
})

// brokered is a sandbox with a real sb-broker, and a keeper.
type brokered struct {
	*sandbox
	program *exec.Cmd
	wire    *os.File // the broker's end, as sb-run keeps it
	trust   *x509.CertPool
}

// startBroker runs a gate and a broker; "bind=NAME" among the rules binds a key.
func startBroker(t *testing.T, rules ...string) *brokered {
	t.Helper()
	path, err := brokerProgram()
	if err != nil {
		t.Fatal(err)
	}
	near, far, err := fd.Pair("broker", fd.Dgram)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	b := &brokered{wire: far}
	b.run(t, path, rules)
	b.sandbox = startBrokered(t, nil, near, rules...)
	return b
}

// run starts the broker and plays its keeper.
func (b *brokered) run(t *testing.T, path string, rules []string) {
	t.Helper()
	m, _ := policyOf(t, rules...)
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, roots := filepath.Join(dir, "sandbox.toml"), filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: theAuthority().cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	keepers, secrets, err := fd.Pair("secrets", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	certificate, caOut := pipe(t)
	ready, isReady := pipe(t)
	b.program = exec.Command(path, "--manifest", file, "--roots", roots, "--broker=3", "--secrets=4", "--ca-out=5", "--ready=6")
	b.program.ExtraFiles = []*os.File{b.wire, secrets, caOut, isReady}
	b.program.Stderr = os.Stderr
	if err := b.program.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{secrets, caOut, isReady} {
		f.Close()
	}
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for in := bufio.NewScanner(keepers); in.Scan(); {
			fmt.Fprintf(keepers, "value %d\n%s", len(realKey), realKey)
		}
	}()
	t.Cleanup(func() {
		b.program.Process.Kill()
		b.program.Wait()
		<-kept
		keepers.Close()
	})
	pemText, _ := io.ReadAll(certificate)
	b.trust = x509.NewCertPool()
	if !b.trust.AppendCertsFromPEM(pemText) {
		t.Fatalf("the broker's certificate: %q", pemText)
	}
	if err := fd.WaitReady(ready, say.Version); err != nil {
		t.Fatalf("the broker is not ready: %v", err)
	}
	certificate.Close()
	ready.Close()
}

func pipe(t *testing.T) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// api serves HTTPS for names: it sends back the key that it got, as a header and in
// its body, which is as long as the path says.
func (s *sandbox) api(names ...string) (*site, *seen) {
	s.t.Helper()
	w, got := s.listener(newAddr(), 443), &seen{}
	for _, n := range names {
		s.dns.at(n, w.at.Addr())
	}
	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: got, TLSConfig: &tls.Config{Certificates: []tls.Certificate{theAuthority().certificate(names...)}}}
	w.stop = func() { srv.Close() }
	w.handlers.Go(func() { srv.ServeTLS(w, "", "") })
	return w, got
}

// seen is what a server saw, and how it answers.
type seen struct {
	mu   sync.Mutex
	keys []string
	hold chan struct{} // /hold waits for it
	held chan struct{} // and tells that it does
	cut  chan struct{} // and that its connection broke
}

func (g *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("X-Api-Key")
	g.mu.Lock()
	g.keys = append(g.keys, key)
	g.mu.Unlock()
	w.Header().Set("X-Echo", key)
	fmt.Fprintf(w, "key=%s body=%d\n", key, len(body))
	if r.URL.Path == "/hold" {
		w.(http.Flusher).Flush()
		close(g.held)
		select {
		case <-g.hold:
		case <-r.Context().Done():
			close(g.cut)
		}
	}
}

// web is an HTTP client in the guest.
func (b *brokered) client(trust *x509.CertPool, protocol string) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(protocol != "h2")
	p.SetHTTP2(protocol == "h2")
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		Protocols:       p,
		TLSClientConfig: &tls.Config{RootCAs: trust},
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			at := netip.AddrPort{}
			host, port, _ := strings.Cut(addr, ":")
			if port == "443" {
				at = netip.AddrPortFrom(b.handle(host), 443)
			}
			conn, err := b.guest.dial(at)
			return leaver{conn}, err
		},
	}}
}

// leaver is a connection that is closed when the other side has said its farewell too:
// one that comes to a client which is gone is answered with a reset.
type leaver struct{ *gonet.TCPConn }

// Close implements net.Conn.
func (c leaver) Close() error {
	c.SetDeadline(time.Now().Add(20 * time.Second))
	c.CloseWrite()
	io.Copy(io.Discard, c.TCPConn)
	return c.TCPConn.Close()
}

func keyed(c *http.Client, url, key string, body io.Reader) (text string, h http.Header, err error) {
	r, err := http.NewRequest("POST", url, body)
	if err != nil {
		return "", nil, err
	}
	r.Header.Set("X-Api-Key", key)
	res, err := c.Do(r)
	if err != nil {
		return "", nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), res.Header, err
}

// TestBroker: a request for a bound name has the real key, its answer the
// placeholder; every byte is counted.
func TestBroker(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			s := startBroker(t, "api.example", "bind=api.example")
			s.inexact = protocol == "h2" // the server's own count is taken while it may still write
			w, got := s.api("api.example")
			c := s.client(s.trust, protocol)
			for range 2 {
				text, h, err := keyed(c, "https://api.example/v1", fakeKey, strings.NewReader(strings.Repeat("x", 100000)))
				if err != nil || text != "key="+fakeKey+" body=100000\n" || h.Get("X-Echo") != fakeKey {
					t.Errorf("%q %v %v", text, h, err)
				}
			}
			c.CloseIdleConnections()
			s.has("close tcp api.example " + w.at.String() + " done -")
			s.hasN(2, "note broker api.example "+w.at.String()+" credential-used key")
			s.hasN(2, "note broker api.example "+w.at.String()+" secret-echo -")
			if got.keys[0] != realKey || got.keys[1] != realKey {
				t.Errorf("the server got %q", got.keys)
			}
		})
	}
}

// TestBrokerOtherNames: another name at the same address shows the server's own
// certificate, and gets no key.
func TestBrokerOtherNames(t *testing.T) {
	s := startBroker(t, "api.example", "other.example", "bind=api.example")
	s.inexact = true // a client that does not trust what it sees resets
	s.api("api.example", "other.example")
	for _, protocol := range []string{"http/1.1", "h2"} {
		if _, _, err := keyed(s.client(s.trust, protocol), "https://other.example/", fakeKey, nil); err == nil {
			t.Error("another name was served by the broker")
		}
		text, _, err := keyed(s.client(theAuthority().pool, protocol), "https://other.example/", fakeKey, nil)
		if err != nil || text != "key="+fakeKey+" body=0\n" {
			t.Errorf("another name: %q %v", text, err)
		}
		if text, _, err := keyed(s.client(s.trust, protocol), "https://api.example/", fakeKey, nil); err != nil {
			t.Errorf("the bound name: %q %v", text, err)
		}
	}
}

// TestBrokerAbsent: without a broker a bound name is refused, and another is not.
func TestBrokerAbsent(t *testing.T) {
	s := start(t, "api.example", "other.example", "bind=api.example")
	w := s.secure(443, "api.example", "other.example")
	s.refusesTLS(w, "api.example", client("api.example"), "broker-absent")
	s.has("deny broker api.example " + w.at.String() + " broker-absent -")
	s.passesTLS("other.example", 443, "other.example")
	// By which address a name is dialled makes no difference.
	s.refusesTLS(w, "other.example", client("api.example"), "broker-absent")
}

// TestE16Cleartext: only TLS is handed over. HTTP in clear for a bound name goes
// where it always did, with the placeholder that the guest has.
func TestE16Cleartext(t *testing.T) {
	s := startBroker(t, "api.example", "bind=api.example")
	w, got := s.listener(newAddr(), 80), &seen{}
	s.dns.at("api.example", w.at.Addr())
	s.serveWeb(w, got)
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return s.guest.dial(netip.AddrPortFrom(s.handle("api.example"), 80))
	}}}
	if text, _, err := keyed(c, "http://api.example/", fakeKey, nil); err != nil || text != "key="+fakeKey+" body=0\n" {
		t.Errorf("%q %v", text, err)
	}
	c.CloseIdleConnections()
	s.has("close tcp api.example " + w.at.String() + " done -")
	s.hasNot("note broker")
	s.api("api.example")
	tlsClient := s.client(s.trust, "http/1.1")
	if _, _, err := keyed(tlsClient, "https://api.example/", fakeKey, nil); err != nil {
		t.Error(err)
	}
	s.has("note broker api.example * credential-used key")
	tlsClient.CloseIdleConnections()
	s.hasN(2, "close tcp api.example * done -")
}

// TestE15Gate: the broker refuses a server that does not prove its name; the guest
// is told so, and nothing of what it asks went out.
func TestE15Gate(t *testing.T) {
	s := startBroker(t, "api.example", "bind=api.example")
	s.inexact = true
	w := s.secureWith(443, &tls.Config{Certificates: []tls.Certificate{theAuthority().certificate("other.example")}}, "api.example")
	if _, _, err := keyed(s.client(s.trust, "h2"), "https://api.example/", fakeKey, nil); err == nil {
		t.Error("it was answered")
	}
	s.has("deny broker api.example " + w.at.String() + " upstream-unverified -")
	s.has("close tcp api.example " + w.at.String() + " upstream-unverified -")
}
