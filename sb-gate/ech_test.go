//go:build linux

package main

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/tlstext"
)

// grease is how a browser speaks TLS to a name: encrypted to nobody, and the same
// name within.
func grease(name string) *tls.Config {
	c := client(name)
	c.MinVersion = tls.VersionTLS13
	c.EncryptedClientHelloConfigList = madeUpECH(name)
	return c
}

// greased dials a name with such a hello. It passed if the server's whole
// handshake came back, which then says whether it offers ECH.
func (s *sandbox) greased(name string, port uint16, config *tls.Config) (passed, offered bool) {
	s.t.Helper()
	c := s.dial(name, port)
	defer c.Close()
	_, err := speaks(c, config)
	var rejected *tls.ECHRejectionError
	if errors.As(err, &rejected) {
		return true, rejected.RetryConfigList != nil
	}
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		s.t.Errorf("%s:%d: %v, neither a handshake nor a refusal", name, port, err)
	}
	return false, false
}

// echSite is a server that offers ECH under one name and has others within. It
// notes the names that it was asked for.
type echSite struct {
	*site
	list []byte // its configurations, as in DNS

	mu    sync.Mutex
	asked map[string]int
}

func (s *sandbox) secureECH(port uint16, public string, hidden ...string) *echSite {
	s.t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	config := echConfig(key, public)
	e := &echSite{list: append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...), asked: map[string]int{}}
	e.site = s.secureWith(port, &tls.Config{
		Certificates:             []tls.Certificate{theAuthority().certificate(append(hidden, public)...)},
		EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{{Config: config, PrivateKey: key.Bytes(), SendAsRetry: true}},
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.asked[h.ServerName]++
			return nil, nil
		},
	}, public)
	return e
}

func (e *echSite) askedFor(name string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[name]
}

// hiding is a client that asks for one name outside and another one within.
func (e *echSite) hiding(name string) *tls.Config {
	c := client(name)
	c.MinVersion = tls.VersionTLS13
	c.EncryptedClientHelloConfigList = e.list
	return c
}

// TestB2Refuse: unless the sandbox says otherwise, every encrypted hello is
// refused, and nobody is asked anything.
func TestB2Refuse(t *testing.T) {
	for _, mode := range []string{"", "refuse"} {
		s := start(t, "a.example", "b.example", "ech="+mode)
		plain, able := s.secure(443, "a.example"), s.secureECH(443, "b.example", "hidden.example")
		for name, w := range map[string]*site{"a.example": plain, "b.example": able.site} {
			if passed, _ := s.greased(name, 443, grease(name)); passed {
				t.Errorf("ech = %q: %s: passed", mode, name)
			}
			s.closedUnsaid(w, name, "sni-encrypted")
			s.passesTLS(name, 443, name)
			if n := w.visits(); n != 2 {
				t.Errorf("ech = %q: %s has %d connections, not 2", mode, name, n)
			}
		}
		// Whatever it names outside, that is the reason.
		if passed, _ := s.greased("a.example", 443, grease("denied.example")); passed {
			t.Errorf("ech = %q: a denied name: passed", mode)
		}
		s.has("deny tls denied.example " + plain.at.String() + " sni-encrypted -")
	}
}

// TestB2Auto: a browser's hello passes to the server that has no use for it, and
// not to the one that could decrypt it. The true name within another one never
// gets there.
func TestB2Auto(t *testing.T) {
	s := start(t, "a.example", "also.example", "b.example", "ech=auto")
	plain, able := s.secure(443, "a.example", "also.example", "denied.example"), s.secureECH(443, "b.example", "hidden.example")
	if passed, offered := s.greased("a.example", 443, grease("a.example")); !passed || offered {
		t.Errorf("GREASE to a server without ECH: passed %v, offered %v", passed, offered)
	}
	probe := s.has("close tcp a.example " + plain.at.String() + " done - by=sb ech=none")
	if up, down := probe.Word("up"), probe.Word("down"); len(up) < 3 || len(down) < 3 {
		t.Errorf("the probe has up=%s down=%s", up, down)
	}
	s.has("close tcp a.example " + plain.at.String() + " * - by=guest")
	s.hasN(2, "allow tcp a.example "+plain.at.String()+" allow-rule a.example")
	s.hasN(1, "allow tcp a.example "+plain.at.String()+" allow-rule a.example by=sb")

	// What one name's server has not, another's may have.
	if passed, _ := s.greased("a.example", 443, grease("also.example")); !passed {
		t.Error("GREASE for another allowed name of the same server: refused")
	}
	s.has("close tcp also.example " + plain.at.String() + " done - by=sb ech=none")
	// The name outside is judged as always, and nobody is asked about it.
	if passed, _ := s.greased("a.example", 443, grease("denied.example")); passed {
		t.Error("GREASE for a denied name: passed")
	}
	s.closedUnsaid(plain, "a.example", "sni-denied")
	s.hasNot("* tcp denied.example *")

	if passed, _ := s.greased("b.example", 443, grease("b.example")); passed {
		t.Error("GREASE to a server with ECH: passed")
	}
	s.has("close tcp b.example " + able.at.String() + " done - by=sb ech=offered")
	s.closedUnsaid(able.site, "b.example", "sni-encrypted")
	if passed, _ := s.greased("b.example", 443, able.hiding("hidden.example")); passed {
		t.Error("a true encrypted hello: passed")
	}
	s.hasN(2, "dial tcp b.example "+able.at.String()+" sni-encrypted - by=guest")
	s.hasN(2, "close tcp b.example "+able.at.String()+" sni-encrypted - up=0 by=guest")
	if n := able.askedFor("hidden.example"); n != 0 {
		t.Errorf("the server was asked for the hidden name %d times", n)
	}
	s.passesTLS("b.example", 443, "b.example")
	// That hello works where no gate is in between.
	c, err := net.Dial("tcp", able.at.String())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := speaks(c, able.hiding("hidden.example")); err != nil || got != "you asked for hidden.example" || able.askedFor("hidden.example") != 1 {
		t.Errorf("without a gate: %q, %v, asked for it %d times", got, err, able.askedFor("hidden.example"))
	}
	able.uncount(1)

	// What a name's server had not, another one of that name may have.
	moved := s.secureECH(443, "a.example")
	if passed, _ := s.greased("a.example", 443, grease("a.example")); passed {
		t.Error("GREASE to another server, with ECH: passed")
	}
	s.has("close tcp a.example " + moved.at.String() + " done - by=sb ech=offered")
}

// TestB2AutoOnce: ten connections at once to each of two servers, one probe each.
func TestB2AutoOnce(t *testing.T) {
	s := start(t, "a.example", "b.example", "ech=auto")
	plain, able := s.secure(443, "a.example"), s.secureECH(443, "b.example")
	for name, w := range map[string]*site{"a.example": plain, "b.example": able.site} {
		var wait sync.WaitGroup
		s.handle(name)
		for range 10 {
			wait.Go(func() {
				if passed, _ := s.greased(name, 443, grease(name)); passed != (w == plain) {
					t.Errorf("%s: passed %v", name, passed)
				}
			})
		}
		wait.Wait()
		s.hasN(1, "allow tcp "+name+" * allow-rule "+name+" by=sb")
		s.hasN(1, "close tcp "+name+" * done - by=sb")
		s.hasN(10, "close tcp "+name+" * * - by=guest")
		if n := w.visits(); n != 11 {
			t.Errorf("%s has %d connections, not 11", name, n)
		}
	}
}

// TestB2AutoRetry: a server that asks for a second hello gets the browser's, which
// is encrypted too.
func TestB2AutoRetry(t *testing.T) {
	s := start(t, "a.example", "ech=auto")
	w := s.secureWith(443, &tls.Config{Certificates: []tls.Certificate{theAuthority().certificate("a.example")}, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.CurveP521}}, "a.example")
	if passed, _ := s.greased("a.example", 443, grease("a.example")); !passed {
		t.Error("refused")
	}
	s.has("close tcp a.example " + w.at.String() + " done - by=sb ech=none")
	// One that was not at first: it was not asked about.
	c := s.dial("a.example", 443)
	c.Write(firstBytes(t, client("a.example")))
	s.hasN(3, "allow tcp a.example "+w.at.String()+" allow-rule a.example")
	if _, err := c.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	c.Write(firstBytes(t, grease("a.example")))
	readAll(c)
	s.has("deny tls a.example " + w.at.String() + " sni-encrypted -")
	s.inexact = true // the server still spoke
}

// TestB2AutoDoubt: where the probe finds nothing out, the hello is refused, though
// the server serves the name in clear.
func TestB2AutoDoubt(t *testing.T) {
	s := start(t, "*.example", "45.67.0.0/16", "ech=auto")
	s.inexact = true // servers that are cut off in the middle
	cert := []tls.Certificate{theAuthority().certificate("old.example", "odd.example")}
	old := s.secureWith(443, &tls.Config{Certificates: cert, MaxVersion: tls.VersionTLS12}, "old.example")
	odd := s.secureWith(443, &tls.Config{Certificates: cert, NextProtos: []string{"odd/1"}}, "odd.example")
	rude := s.site("rude.example", 443, func(c net.Conn) {
		bufio.NewReader(c).Peek(1)
		c.Write([]byte("SSH-2.0-what?\r\n"))
	})
	mute := s.site("mute.example", 443, drain)
	var wait sync.WaitGroup
	for name, w := range map[string]*site{"old.example": old, "odd.example": odd, "rude.example": rude, "mute.example": mute} {
		s.handle(name)
		wait.Go(func() {
			if passed, _ := s.greased(name, 443, grease(name)); passed {
				t.Errorf("%s: passed", name)
			}
			s.closedUnsaid(w, name, "sni-encrypted")
			s.hasN(1, "close tcp "+name+" "+w.at.String()+" * - by=sb ech=unknown")
		})
	}
	wait.Wait()
	s.passesTLS("old.example", 443, "old.example")
	s.passesTLS("odd.example", 443, "odd.example")

	// Nobody is there any more when the probe dials.
	gone := s.secure(443, "gone.example")
	c := s.dial("gone.example", 443)
	within(t, 5*time.Second, "the connection", func() bool { return gone.visits() == 1 })
	gone.ln.Close()
	if _, err := speaks(c, grease("gone.example")); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("gone: %v", err)
	}
	s.has("dial tcp gone.example " + gone.at.String() + " connect-refused - by=sb")
	s.closedUnsaid(gone, "gone.example", "sni-encrypted")

	// A hello that names nobody, to an address.
	nobody := s.siteAt(newAddr(), 443, drain)
	for _, x := range []struct{ hello, why string }{{"rec{hello{ext:65037{00}}}", "sni-encrypted"}, {"rec{hello{ext:10{0002001d}}}", "done"}} {
		b, err := tlstext.Bytes(x.hello)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := s.guest.dial(nobody.at)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(b)
		conn.CloseWrite()
		readAll(conn)
		conn.Close()
		s.has("close tcp - " + nobody.at.String() + " " + x.why + " -")
	}
	if n := nobody.visits(); n != 2 {
		t.Errorf("%d connections to who was not named", n)
	}
}
