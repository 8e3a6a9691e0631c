package world

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Names is what the nameserver knows. Every name of example.org is on the CDN
// unless it stands here.
var Names = map[string]string{
	"other.example.net":    Other,
	"office.example.org":   Office,
	"loopback.example.org": "127.0.0.1",
	"host.example.org":     HostAddr,
	"gone.example.org":     "", // no such name
	"proxy.example.org":    Other,
	"a.example":            CDN, // of the gate's vectors
	"b.example":            CDN,
}

// VendorNames lead to Vendors: the hosts of the clients that tests run whole.
var VendorNames = []string{"api.anthropic.com", "platform.claude.com", "api.openai.com", "auth.openai.com", "chatgpt.com", "generativelanguage.googleapis.com"}

// served is what the servers have seen.
type served struct {
	mu      sync.Mutex
	queries map[string]int // by name
	accepts map[string]int // by address:port
	turns   map[string]int // of the attacker's names, by name and type

	credentials map[string]string // digests, by seenPlace
}

// serve is the process of the servers: it configures its network, listens and
// answers until it is killed.
func serve(dir string) error {
	// The veth appears when the host has made it.
	for end := time.Now().Add(20 * time.Second); ip("link show sb-world") != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no veth in 20 seconds")
		}
	}
	lines := []string{"link set lo up", "addr add 10.99.0.2/24 dev sb-world", "link set sb-world up"}
	for _, a := range []string{Nameserver, CDN, Other, Never, Vendors, Office} {
		lines = append(lines, "addr add "+a+"/32 dev lo")
	}
	for _, l := range lines {
		if err := ip(l); err != nil {
			return err
		}
	}
	s := &served{queries: map[string]int{}, accepts: map[string]int{}, turns: map[string]int{}, credentials: map[string]string{}}
	if err := s.listen(dir); err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(dir, "ready"), fmt.Sprint(os.Getpid())); err != nil {
		return err
	}
	select {}
}

// writeWhole makes a file that is whole as soon as it is there.
func writeWhole(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (s *served) listen(dir string) error {
	udp, err := net.ListenPacket("udp", Nameserver+":53")
	if err != nil {
		return err
	}
	go s.dnsUDP(udp)
	stream, err := net.Listen("tcp", Nameserver+":53")
	if err != nil {
		return err
	}
	go s.dnsTCP(stream)
	tlsConfig, ca, err := Certificates("*.example.org", "example.org", "*.example.net", "*.example.com")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o644); err != nil {
		return err
	}
	if err := s.listenECH(dir, tlsConfig); err != nil {
		return err
	}
	web := &http.Server{Handler: s.noting(page), ErrorLog: log.New(io.Discard, "", 0)}
	for _, a := range []string{CDN, Other, Never, Office} {
		for _, port := range []string{"80", "8080"} {
			l, err := s.accepting(a + ":" + port)
			if err != nil {
				return err
			}
			go web.Serve(l)
		}
		for _, port := range []string{"443", "8443"} {
			l, err := s.accepting(a + ":" + port)
			if err != nil {
				return err
			}
			go web.Serve(tls.NewListener(l, tlsConfig))
		}
		banner, err := s.accepting(a + ":22")
		if err != nil {
			return err
		}
		go speakFirst(banner)
		echo, err := net.ListenPacket("udp", a+":7777")
		if err != nil {
			return err
		}
		go echoUDP(echo)
		quic, err := net.ListenPacket("udp", a+":443")
		if err != nil {
			return err
		}
		go echoUDP(quic)
	}
	if err := s.proxy(Other + ":" + ProxyPort); err != nil {
		return err
	}
	return s.control(filepath.Join(dir, "control"))
}

// accepting is a listener that counts.
func (s *served) accepting(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &counter{l, s, addr}, nil
}

type counter struct {
	net.Listener
	s    *served
	addr string
}

func (c *counter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.s.mu.Lock()
		c.s.accepts[c.addr]++
		c.s.mu.Unlock()
	}
	return conn, err
}

// page says what the server saw of the request.
func page(w http.ResponseWriter, r *http.Request) {
	if git(w, r) || redirects(w, r) {
		return
	}
	n, _ := io.Copy(io.Discard, r.Body)
	name := ""
	if r.TLS != nil {
		name = r.TLS.ServerName
	}
	if size := r.URL.Query().Get("size"); size != "" {
		var want int64
		fmt.Sscan(size, &want)
		w.Header().Set("Content-Length", size)
		io.CopyN(w, zeros{}, want)
		return
	}
	if indexes(w, r) || credentials(w, r) {
		return
	}
	fmt.Fprintf(w, "served %s %s host=%s sni=%s body=%d\n", r.Method, r.URL.Path, r.Host, name, n)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// speakFirst greets like an SSH server and then echoes.
func speakFirst(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.WriteString(c, "SSH-2.0-world\r\n")
			// Not from socket to socket, for which Go opens a pipe beside each.
			io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
		}()
	}
}

func echoUDP(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		c.WriteTo(buf[:n], from)
	}
}

// UnknownCA is a host whose certificate is of a CA that nobody has.
const UnknownCA = "unknown.example.org"

// Certificates makes a CA, in PEM, and what a server of those names needs: a
// certificate of that CA, but for UnknownCA another's.
func Certificates(names ...string) (*tls.Config, []byte, error) {
	cert, ca, err := issue("the world's CA", names)
	if err != nil {
		return nil, nil, err
	}
	unknown, _, err := issue("a CA that nobody has", names)
	if err != nil {
		return nil, nil, err
	}
	byName := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == UnknownCA {
			return &unknown, nil
		}
		return &cert, nil
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, GetCertificate: byName, NextProtos: []string{"h2", "http/1.1"}}
	return config, ca, nil
}

// issue makes a CA of that name and a certificate of its own for the names of
// servers; it returns the CA's in PEM too.
func issue(name string, names []string) (cert tls.Certificate, pemCA []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return cert, nil, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "world"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, DNSNames: names}
	for _, a := range []string{CDN, Other, Office} {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(a))
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	if err != nil {
		return cert, nil, err
	}
	cert = tls.Certificate{Certificate: [][]byte{leafDER, caDER}, PrivateKey: key}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), nil
}

func (s *served) dnsUDP(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := s.answer(buf[:n], false); answer != nil {
			c.WriteTo(answer, from)
		}
	}
}

func (s *served) answer(q []byte, stream bool) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(q)
	if err != nil {
		return nil
	}
	question, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	s.mu.Lock()
	s.queries[name]++
	s.mu.Unlock()
	if a := s.attacked(h.ID, question, stream); a != nil {
		return a
	}
	addr, known := Names[name]
	if !known && strings.HasSuffix("."+name, ".example.org") {
		addr = CDN
	}
	if slices.Contains(VendorNames, name) {
		addr = Vendors
	}
	code := dnsmessage.RCodeSuccess
	if addr == "" {
		code = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true, RCode: code})
	b.StartQuestions()
	b.Question(question)
	b.StartAnswers()
	if a, err := netip.ParseAddr(addr); err == nil && question.Type == dnsmessage.TypeA {
		b.AResource(dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 5}, dnsmessage.AResource{A: a.As4()})
	}
	if question.Type == dnsmessage.TypeTXT && addr != "" {
		b.TXTResource(dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 5}, dnsmessage.TXTResource{TXT: []string{"text of " + name}})
	}
	msg, _ := b.Finish()
	return msg
}

// Seen is what the servers have seen.
type Seen struct {
	Queries map[string]int // questions to the nameserver, by name
	Accepts map[string]int // connections, by address:port

	Credentials map[string]string // by HOST/seen/NAME, the Digest of the last Authorization below it
}

// control tells tests what was seen, over a socket with a path: those are the
// same in every network namespace.
func (s *served) control(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			json.NewEncoder(c).Encode(Seen{s.queries, s.accepts, s.credentials})
			s.mu.Unlock()
			c.Close()
		}
	}()
	return nil
}

// Look asks the servers what they have seen.
func Look() (Seen, error) {
	var seen Seen
	c, err := net.Dial("unix", filepath.Join(Dir(), "control"))
	if err != nil {
		return seen, err
	}
	defer c.Close()
	return seen, json.NewDecoder(c).Decode(&seen)
}
