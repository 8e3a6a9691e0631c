//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// site is a server of the world. It counts, from its own end and by the kernel's
// own counters, what the gate says went over its connections.
type site struct {
	at       netip.AddrPort
	ln       net.Listener
	stop     func() // ends what serves it
	handlers sync.WaitGroup

	mu       sync.Mutex
	conns    []*siteConn
	accepted int
	got      int64 // payload bytes that reached it, read or not
	sent     int64 // payload bytes that it sent
}

const tcpClose = 7 // linux/tcp_states.h

type siteConn struct {
	net.Conn // hides what would read or write past Read and Write
	tcp      *net.TCPConn
	site     *site
	read     atomic.Int64
	wrote    atomic.Int64
	once     sync.Once
	done     chan struct{} // closed when the fields below are set
	got      int64
	sent     int64
}

func (c *siteConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c *siteConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wrote.Add(int64(n))
	return n, err
}

// Close counts what the connection has seen. What was written goes out after it
// too, unless the connection was reset: then the kernel knows what had.
func (c *siteConn) Close() error {
	c.once.Do(func() {
		raw, err := c.tcp.SyscallConn()
		if err != nil {
			panic(err)
		}
		raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err != nil {
				panic(err)
			}
			unread, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			if err != nil {
				panic(err)
			}
			c.site.mu.Lock()
			defer c.site.mu.Unlock()
			c.got, c.sent = c.read.Load()+int64(unread), c.wrote.Load()
			if info.State == tcpClose {
				c.sent = int64(info.Bytes_sent - info.Bytes_retrans)
			}
			c.site.got += c.got
			c.site.sent += c.sent
		})
		close(c.done)
	})
	return c.Conn.Close()
}

// Accept implements net.Listener.
func (s *site) Accept() (net.Conn, error) {
	c, err := s.ln.Accept()
	if err != nil {
		return nil, err
	}
	sc := &siteConn{Conn: c, tcp: c.(*net.TCPConn), site: s, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
	s.conns = append(s.conns, sc)
	return sc, nil
}

// Close implements net.Listener.
func (s *site) Close() error { return s.ln.Close() }

// Addr implements net.Listener.
func (s *site) Addr() net.Addr { return s.ln.Addr() }

func (s *site) close() {
	s.ln.Close()
	if s.stop != nil {
		s.stop()
	}
	s.mu.Lock()
	conns := s.conns
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	s.handlers.Wait()
}

// visits is how many connections were accepted so far.
func (s *site) visits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// agrees compares the log with what the server saw: as many connections, as many
// bytes each way.
func (s *site) agrees(t *testing.T, log *auditLog, inexact bool) {
	opened, up, down := s.logged(t, log)
	// One that the gate gave up may have been accepted in that moment.
	most := opened + int(log.count("dial tcp * "+s.at.String()+" connect-timeout"))
	if s.accepted < opened || s.accepted > most {
		t.Errorf("%s: %d to %d connections in the log, %d at the server", s.at, opened, most, s.accepted)
	}
	if !inexact && (up != s.got || down != s.sent) {
		t.Errorf("%s: up=%d down=%d in the log; %d bytes reached the server, %d left it", s.at, up, down, s.got, s.sent)
	}
}

// settle waits until the server has taken what the log says was opened, which
// its kernel may have done first, and closes it.
func (s *site) settle(t *testing.T, log *auditLog) {
	opened, _, _ := s.logged(t, log)
	for end := time.Now().Add(2 * time.Second); s.visits() < opened && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.close()
}

// logged is what the log says of the server: connections that were opened, and
// bytes each way.
func (s *site) logged(t *testing.T, log *auditLog) (opened int, up, down int64) {
	for _, line := range log.all() {
		if line.Address != s.at.String() || line.Gate != "tcp" {
			continue
		}
		switch {
		case line.Verdict == "allow", isOpened(line):
			opened++
		case line.Verdict == "close":
			var u, d int64
			if _, err := fmt.Sscan(line.Word("up"), &u); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if _, err := fmt.Sscan(line.Word("down"), &d); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			up, down = up+u, down+d
		}
	}
	return opened, up, down
}

// nextAddr gives every site an address of its own.
var nextAddr atomic.Uint32

func newAddr() netip.Addr {
	n := nextAddr.Add(1)
	return netip.AddrFrom4([4]byte{45, 67, byte(n >> 8), byte(n)})
}

// site opens a server for a name, at an address of its own. Each connection is
// handled by handle and closed after it.
func (s *sandbox) site(name string, port uint16, handle func(net.Conn)) *site {
	s.t.Helper()
	w := s.siteAt(newAddr(), port, handle)
	if name != "" {
		s.dns.at(name, w.at.Addr())
	}
	return w
}

func (s *sandbox) siteAt(addr netip.Addr, port uint16, handle func(net.Conn)) *site {
	s.t.Helper()
	w := s.listener(addr, port)
	w.handlers.Go(func() {
		for {
			c, err := w.Accept()
			if err != nil {
				return
			}
			w.handlers.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	return w
}

func (s *sandbox) listener(addr netip.Addr, port uint16) *site {
	s.t.Helper()
	// An IPv6 address that only a route has is not bound to without FREEBIND.
	lc := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) (err error) {
		if network == "tcp6" {
			c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1) })
		}
		return err
	}}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(s.t.Context(), "tcp", netip.AddrPortFrom(addr, port).String())
	if err != nil {
		s.t.Fatal(err)
	}
	w := &site{ln: ln}
	w.at = ln.Addr().(*net.TCPAddr).AddrPort()
	w.at = netip.AddrPortFrom(w.at.Addr().Unmap(), w.at.Port())
	s.sites = append(s.sites, w)
	return w
}

// echo sends back what comes, and ends when the other side does.
func echo(c net.Conn) {
	io.Copy(c, c)
	c.(*siteConn).tcp.CloseWrite()
}

// drain reads until the other side ends.
func drain(c net.Conn) { io.Copy(io.Discard, c) }

// web serves HTTP for a name: what it answers says which host was asked for and
// how long the body was.
func (s *sandbox) web(name string, port uint16) *site {
	s.t.Helper()
	w := s.listener(newAddr(), port)
	if name != "" {
		s.dns.at(name, w.at.Addr())
	}
	s.serveWeb(w, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "host=%s path=%s body=%d\n", r.Host, r.URL.Path, n)
	}))
	return w
}

func (s *sandbox) serveWeb(w *site, h http.Handler) {
	srv := &http.Server{Handler: h}
	w.stop = func() { srv.Close() }
	w.handlers.Go(func() { srv.Serve(w) })
}

// authority signs the certificates of the world's TLS servers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

var theAuthority = sync.OnceValue(func() *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "world"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert, _ := x509.ParseCertificate(der)
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
})

// certificate is one for names.
func (a *authority) certificate(names ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// secure serves TLS for names at one address: what it says is the name that was
// asked for, then what it hears.
func (s *sandbox) secure(port uint16, names ...string) *site {
	s.t.Helper()
	return s.secureWith(port, &tls.Config{Certificates: []tls.Certificate{theAuthority().certificate(names...)}}, names...)
}

func (s *sandbox) secureWith(port uint16, config *tls.Config, names ...string) *site {
	s.t.Helper()
	w := s.site("", port, func(c net.Conn) {
		t := tls.Server(c, config)
		if t.Handshake() != nil {
			return
		}
		fmt.Fprintf(t, "you asked for %s\n", t.ConnectionState().ServerName)
		io.Copy(t, t)
		t.Close()
	})
	for _, n := range names {
		s.dns.at(n, w.at.Addr())
	}
	return w
}

// client is how the guest speaks TLS to a name.
func client(name string) *tls.Config {
	return &tls.Config{ServerName: name, RootCAs: theAuthority().pool}
}

// uncount leaves out n connections that a test made itself, past the gate.
func (s *site) uncount(n int) {
	s.mu.Lock()
	conns := s.conns
	s.mu.Unlock()
	last := conns[len(conns)-n:]
	for _, c := range last {
		<-c.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted -= n
	for _, c := range last {
		s.got -= c.got
		s.sent -= c.sent
	}
}

// first is the first connection that was accepted.
func (s *site) first() *siteConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[0]
}
