//go:build linux

package main

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
)

// speaks does a TLS handshake on a connection, says "hi", returns what the
// server said first, and leaves when it has seen the server's end.
func speaks(c net.Conn, config *tls.Config) (string, error) {
	t := tls.Client(c, config)
	if err := t.Handshake(); err != nil {
		return "", err
	}
	in := bufio.NewReader(t)
	line, err := in.ReadString('\n')
	t.Write([]byte("hi"))
	t.CloseWrite()
	io.Copy(io.Discard, in)
	c.Close()
	return strings.TrimSpace(line), err
}

func (s *sandbox) secureGets(name string, port uint16, sni string) (string, error) {
	s.t.Helper()
	c := s.dial(name, port)
	defer c.Close()
	return speaks(c, client(sni))
}

// passesTLS is the control of a refusal: the same dial with the right name.
func (s *sandbox) passesTLS(name string, port uint16, sni string) {
	s.t.Helper()
	if got, err := s.secureGets(name, port, sni); err != nil || got != "you asked for "+sni {
		s.t.Errorf("TLS to %s:%d for %s: %q, %v", name, port, sni, got, err)
	}
}

// refusesTLS does a handshake that the gate must refuse, for a reason; the server
// must have got nothing.
func (s *sandbox) refusesTLS(w *site, name string, config *tls.Config, why string) {
	s.t.Helper()
	_, err := speaks(s.dial(name, w.at.Port()), config)
	if err == nil {
		s.t.Errorf("TLS to %s for %q passed", name, config.ServerName)
	}
	s.closedUnsaid(w, name, why)
}

// closedUnsaid waits for the lines of a connection that was opened and on which
// nothing of the guest's went out: dial, close, and a refusal somewhere.
func (s *sandbox) closedUnsaid(w *site, name, why string) {
	s.t.Helper()
	s.has("close tcp " + name + " " + w.at.String() + " " + why + " - up=0")
	s.has("dial tcp " + name + " " + w.at.String() + " " + why + " -")
	if s.log.count("deny * * "+w.at.String()+" "+why) == 0 {
		s.t.Errorf("no line says that it was denied for %s", why)
	}
}

// firstBytes is what a TLS client sends first.
func firstBytes(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		tls.Client(near, config).Handshake()
		near.Close()
	}()
	buf := make([]byte, 32<<10)
	n, err := far.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	return buf[:n]
}

// TestB14RightName: TLS for the handle's own name passes, on any port.
func TestB14RightName(t *testing.T) {
	s := start(t, "a.example")
	for _, port := range []uint16{443, 8443, 2083, 22, 80} {
		w := s.secure(port, "a.example")
		s.passesTLS("a.example", port, "a.example")
		s.has("allow tcp a.example " + w.at.String() + " allow-rule a.example")
		s.has("close tcp a.example " + w.at.String() + " done - by=guest")
	}
}

func TestB16WrongName(t *testing.T) {
	s := start(t, "a.example", "b.example", "far.example", "!no.example")
	cdn := s.secure(443, "a.example", "b.example", "denied.example", "no.example")
	s.secure(443, "far.example")
	// Names that share an address: any allowed one of them may be asked for.
	s.passesTLS("a.example", 443, "a.example")
	s.passesTLS("a.example", 443, "b.example")
	s.hasN(2, "close tcp a.example "+cdn.at.String()+" done -")
	for _, c := range []struct{ sni, why, rule string }{
		{"denied.example", "sni-denied", "-"},
		{"far.example", "sni-mismatch", "-"}, // allowed, and somewhere else
		{"no.example", "deny-rule", "no.example"},
	} {
		s.refusesTLS(cdn, "a.example", client(c.sni), c.why)
		s.has("deny tls " + c.sni + " " + cdn.at.String() + " " + c.why + " " + c.rule)
	}
}

// A TLS client that is refused is told so.
func TestRefusalIsAnAlert(t *testing.T) {
	s := start(t, "a.example")
	w := s.secure(443, "a.example", "denied.example")
	_, err := speaks(s.dial("a.example", 443), client("denied.example"))
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("the client says: %v", err)
	}
	s.closedUnsaid(w, "a.example", "sni-denied")
	s.passesTLS("a.example", 443, "a.example")
}

func TestB3NoName(t *testing.T) {
	s := start(t, "a.example")
	w := s.secure(443, "a.example")
	s.refusesTLS(w, "a.example", &tls.Config{InsecureSkipVerify: true}, "sni-absent")
	s.passesTLS("a.example", 443, "a.example")
}

// TestB2EncryptedHello: a hello whose true name is encrypted is refused although
// the name outside is allowed; the same server serves it in clear.
func TestB2EncryptedHello(t *testing.T) {
	s := start(t, "a.example")
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config := echConfig(key, "a.example")
	w := s.secureWith(443, &tls.Config{
		Certificates:             []tls.Certificate{theAuthority().certificate("a.example", "hidden.example")},
		EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{{Config: config, PrivateKey: key.Bytes(), SendAsRetry: true}},
	}, "a.example")
	hidden := client("hidden.example")
	hidden.MinVersion = tls.VersionTLS13
	hidden.EncryptedClientHelloConfigList = binary.BigEndian.AppendUint16(nil, uint16(len(config)))
	hidden.EncryptedClientHelloConfigList = append(hidden.EncryptedClientHelloConfigList, config...)
	s.refusesTLS(w, "a.example", hidden, "sni-encrypted")
	s.passesTLS("a.example", 443, "a.example")
	// That hello works where no gate is in between.
	c, err := net.Dial("tcp", w.at.String())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := speaks(c, hidden); err != nil || got != "you asked for hidden.example" {
		t.Errorf("without a gate: %q, %v", got, err)
	}
	w.uncount(1)
}

// echConfig is an ECHConfig (RFC 9849, section 4).
func echConfig(key *ecdh.PrivateKey, public string) []byte {
	pub := key.PublicKey().Bytes()
	b := []byte{7, 0, 0x20} // config_id, DHKEM(X25519)
	b = binary.BigEndian.AppendUint16(b, uint16(len(pub)))
	b = append(b, pub...)
	b = append(b, 0, 4, 0, 1, 0, 1, 32) // HKDF-SHA256, AES-128-GCM; maximum_name_length
	b = append(b, byte(len(public)))
	b = append(b, public...)
	b = append(b, 0, 0)
	head := []byte{0xfe, 0x0d, 0, 0}
	binary.BigEndian.PutUint16(head[2:], uint16(len(b)))
	return append(head, b...)
}

// TestB1NotAHelloFirst: what is no ClientHello in the first place is refused, the
// warning alert among it that some servers skip.
func TestB1NotAHelloFirst(t *testing.T) {
	s := start(t, "a.example")
	w := s.secure(443, "a.example")
	hello := string(firstBytes(t, client("denied.example")))
	for i, c := range []struct{ name, bytes, why string }{
		{"a warning alert", "\x15\x03\x01\x00\x02\x01\x64" + hello, "not-identified"},
		{"another alert", "\x15\x03\x03\x00\x02\x01\x29" + hello, "not-identified"},
		{"a change of cipher", "\x14\x03\x01\x00\x01\x01" + hello, "not-identified"},
		{"an empty handshake record", "\x16\x03\x01\x00\x00" + hello, "hello-malformed"},
		{"application data", "\x17\x03\x03\x00\x01\x00" + hello, "not-identified"},
		{"SSLv2", "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + hello, "not-identified"},
		{"a PROXY preface", "PROXY TCP4 1.2.3.4 1.2.3.4 1 443\r\n" + hello, "http-malformed"},
	} {
		conn := s.dial("a.example", 443)
		conn.Write([]byte(c.bytes))
		readAll(conn)
		s.hasN(int64(i+1), "close tcp a.example "+w.at.String()+" * - up=0")
		if s.log.count("close tcp a.example "+w.at.String()+" "+c.why) == 0 {
			t.Errorf("%s was refused for another reason than %s:\n%s", c.name, c.why, s.log.String())
		}
	}
	s.passesTLS("a.example", 443, "a.example")
}

// TestB6OneByteSegments: a hello may come byte by byte, and is passed on as it was.
func TestB6OneByteSegments(t *testing.T) {
	s := start(t, "a.example")
	s.secure(443, "a.example")
	c := s.dial("a.example", 443)
	if got, err := speaks(&slow{Conn: c}, client("a.example")); err != nil || got != "you asked for a.example" {
		t.Errorf("%q, %v", got, err)
	}
	w := s.secure(8443, "a.example", "denied.example")
	if got, err := speaks(&slow{Conn: s.dial("a.example", 8443)}, client("denied.example")); err == nil {
		t.Errorf("passed: %q", got)
	}
	s.closedUnsaid(w, "a.example", "sni-denied")
}

// slow writes its first bytes one by one.
type slow struct {
	net.Conn
	wrote bool
}

func (s *slow) Write(b []byte) (int, error) {
	if s.wrote {
		return s.Conn.Write(b)
	}
	s.wrote = true
	for i := range b {
		if _, err := s.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// TestB7Records: a hello in two records, cut anywhere, is read as it is.
func TestB7Records(t *testing.T) {
	s := start(t, "a.example")
	allowed, denied := s.site("a.example", 443, drain), int64(0)
	for _, name := range []string{"a.example", "denied.example"} {
		hello := firstBytes(t, client(name))
		body := hello[5:]
		for cut := 1; cut < len(body); cut += 97 {
			c := s.dial("a.example", 443)
			c.Write(append(record(body[:cut]), record(body[cut:])...))
			c.CloseWrite()
			readAll(c)
			c.Close()
			if name == "denied.example" {
				denied++
			}
		}
	}
	s.hasN(denied, "close tcp a.example "+allowed.at.String()+" sni-denied - up=0")
	s.hasN(denied, "close tcp a.example "+allowed.at.String()+" done -") // as many cuts passed
}

func record(b []byte) []byte {
	return append([]byte{22, 3, 1, byte(len(b) >> 8), byte(len(b))}, b...)
}

// TestB8Long: a hello of the greatest length passes, a longer one does not.
func TestB8Long(t *testing.T) {
	s := start(t, "a.example")
	w := s.site("a.example", 443, drain)
	for _, c := range []struct {
		size int
		why  string
	}{{16 << 10, "done"}, {16<<10 + 1, "hello-too-long"}} {
		conn := s.dial("a.example", 443)
		conn.Write(padded(t, "a.example", c.size))
		conn.CloseWrite()
		readAll(conn)
		s.has("close tcp a.example " + w.at.String() + " " + c.why + " -")
	}
}

// padded is a hello whose body has that many bytes, by the padding extension (RFC
// 7685), in as many records as it needs.
func padded(t *testing.T, name string, size int) []byte {
	config := client(name)
	config.MaxVersion = tls.VersionTLS12
	body := firstBytes(t, config)[9:]
	// Session id, cipher suites and compressions stand before the extensions.
	at := 34
	at += 1 + int(body[at])
	at += 2 + int(binary.BigEndian.Uint16(body[at:]))
	at += 1 + int(body[at])
	pad := size - len(body) - 4
	ext := append([]byte{0, 21, byte(pad >> 8), byte(pad)}, make([]byte, pad)...)
	total := int(binary.BigEndian.Uint16(body[at:])) + len(ext)
	binary.BigEndian.PutUint16(body[at:], uint16(total))
	body = append(body, ext...)
	msg := append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	var out []byte
	for len(msg) > 0 {
		n := min(len(msg), 16384)
		out = append(out, record(msg[:n])...)
		msg = msg[n:]
	}
	return out
}

// TestB9EarlyData: what follows a hello at once is held back with it.
func TestB9EarlyData(t *testing.T) {
	s := start(t, "a.example")
	w := s.site("a.example", 443, drain)
	early := record(make([]byte, 16000))
	early[0], early[2] = 23, 3
	for _, name := range []string{"denied.example", "a.example"} {
		c := s.dial("a.example", 443)
		hello := offersEarlyData(firstBytes(t, client(name)))
		c.Write(append(hello, early...))
		c.CloseWrite()
		readAll(c)
		if name == "denied.example" {
			s.closedUnsaid(w, "a.example", "sni-denied")
		} else {
			s.has("close tcp a.example " + w.at.String() + " done - up=" + num(len(hello)+len(early)))
		}
	}
}

// TestB19PolicyChange: a connection that carries another allowed name of the same
// address ends when that name is allowed no more.
func TestB19PolicyChange(t *testing.T) {
	s := start(t, "a.example", "b.example")
	s.inexact = true // its servers say goodbye while the gate ends
	w := s.secure(443, "a.example", "b.example")
	own, other := tls.Client(s.dial("a.example", 443), client("a.example")), tls.Client(s.dial("a.example", 443), client("b.example"))
	for _, c := range []*tls.Conn{own, other} {
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		read(t, c, "you asked for")
	}
	s.rules(1, "a.example")
	s.has("close tcp a.example " + w.at.String() + " policy-changed -")
	if _, err := other.Write([]byte("x")); err == nil {
		if _, err = other.Read(make([]byte, 1)); err == nil {
			t.Error("the other name's connection goes on")
		}
	}
	own.Write([]byte("still here\n"))
	read(t, own, "still here")
}
