package hello

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"sb/lib/rule"
)

// u8, u16 and u24 put a length before b.
func u8(b []byte) []byte  { return append([]byte{byte(len(b))}, b...) }
func u16(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
func u24(b []byte) []byte {
	return append([]byte{byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b))}, b...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func ext(typ uint16, data []byte) []byte {
	return join(binary.BigEndian.AppendUint16(nil, typ), u16(data))
}

func sniEntry(typ byte, name string) []byte { return join([]byte{typ}, u16([]byte(name))) }

func sni(name string) []byte { return ext(extServerName, u16(sniEntry(0, name))) }

// body makes a ClientHello message with these extensions.
func message1(exts ...[]byte) []byte {
	b := join([]byte{3, 3}, make([]byte, 32), u8(make([]byte, 32)), u16([]byte{0x13, 1, 0x13, 2}), u8([]byte{0}), u16(join(exts...)))
	return join([]byte{typeClientHello}, u24(b))
}

// records puts a message into records of at most n bytes.
func records(msg []byte, n int) (out []byte) {
	for len(msg) > 0 {
		k := min(n, len(msg))
		out = append(out, join([]byte{recordHandshake, 3, 1}, u16(msg[:k]))...)
		msg = msg[k:]
	}
	return out
}

func record(msg []byte) []byte { return records(msg, 16384) }

func set(b []byte, at int, with ...byte) []byte {
	c := bytes.Clone(b)
	copy(c[at:], with)
	return c
}

func name(t testing.TB, s string) rule.Name {
	n, err := rule.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// capture returns what Go's client sends first for this configuration.
func capture(t testing.TB, conf *tls.Config) []byte {
	near, far := net.Pipe()
	defer far.Close()
	go func() { tls.Client(near, conf).Handshake(); near.Close() }()
	far.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 32<<10)
	n, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestRealClients(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS12, tls.VersionTLS13} {
		b := capture(t, &tls.Config{ServerName: "a.example.com", MinVersion: version, MaxVersion: version})
		if h, more, why := Parse(b); more || why != "" || h.Name.String() != "a.example.com" {
			t.Errorf("version %#x: %+v, more %v, %q", version, h, more, why)
		}
	}
	// A client that means it: real ECH, with the outer name of the configuration.
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config := join([]byte{1}, []byte{0, 0x20}, u16(key.PublicKey().Bytes()), u16([]byte{0, 1, 0, 1}), []byte{0}, u8([]byte("a.example.com")), u16(nil))
	list := u16(join([]byte{0xfe, 0x0d}, u16(config)))
	b := capture(t, &tls.Config{ServerName: "inner.example.com", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list})
	if h, more, why := Parse(b); more || why != "" || !h.Encrypted || h.Name.String() != "a.example.com" || h.Size != len(b) {
		t.Errorf("ECH: %+v, more %v, %q", h, more, why)
	}
}

var errStop = errors.New("stop")

// stream is a client that has said all it will.
type stream struct {
	net.Conn // unused: nothing but reading and writing happens
	in       *bytes.Reader
}

func (s stream) Read(b []byte) (int, error)    { return s.in.Read(b) }
func (stream) Write(b []byte) (int, error)     { return len(b), nil }
func (stream) Close() error                    { return nil }
func (stream) SetDeadline(time.Time) error     { return nil }
func (stream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is what crypto/tls calls before an alert.
func (stream) SetWriteDeadline(time.Time) error { return nil }

// goReads is the name that crypto/tls takes from a stream that begins with b;
// ok only if it gets as far as asking for a certificate.
func goReads(b []byte) (name string, ok bool) {
	tls.Server(stream{in: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, errStop
	}}).Handshake()
	return name, ok
}

// agreesWithGo holds what we read of a stream to what crypto/tls does: where both
// take it, which it returns, it is the same name, in our one spelling.
func agreesWithGo(t *testing.T, in []byte) bool {
	t.Helper()
	h, more, why := Parse(in)
	if more || why != "" {
		return false // refused, or held until the time is up
	}
	got, ok := goReads(in)
	want := rule.Name{}
	if got != "" {
		n, err := rule.ParseName(got)
		if err != nil {
			t.Fatalf("crypto/tls reads %q, which is no name; we %q, from % x", got, h.Name, in)
		}
		want = n
	}
	if ok && want != h.Name {
		t.Fatalf("crypto/tls reads %q, we %q, from % x", got, h.Name, in)
	}
	return ok
}

// For every stream that crypto/tls takes a name from, we read the same name or
// refuse; never another, and never none.
func FuzzAgainstGo(f *testing.F) {
	f.Add(record(message1(sni("a.example.com"))))
	f.Add(records(message1(sni("a.example.com")), 3))
	f.Add(capture(f, &tls.Config{ServerName: "a.example.com"}))
	f.Add(join([]byte{21, 3, 1, 0, 2, 1, 100}, record(message1(sni("a.example.com")))))
	for i, v := range vectors(f, "hellos.txt") {
		if i%24 == 0 {
			f.Add(v.in)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) { agreesWithGo(t, in) })
}

// What the watch passes on is what came, in order, and nothing is read twice. No
// record of it, up to where it stops looking, is a hello for another name, or an
// encrypted one where the first was not. (What the server that took the first
// hello gets behind a change_cipher_spec is encrypted.)
func FuzzWatch(f *testing.F) {
	for i, v := range vectors(f, "watches.txt") {
		if i%6 == 0 {
			f.Add(v.in, 3, i%12 == 0, i%18 == 0, strings.Contains(v.what, ", served"))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, chunk int, early, ech, served bool) {
		w := NewWatch(Hello{Name: name(t, "a.example.com"), Early: early, Encrypted: ech})
		w.Answered(served)
		_, passed := watched(w, in, max(chunk, 1))
		if !bytes.HasPrefix(in, passed) {
			t.Fatalf("% x came out as % x", in, passed)
		}
		for rest := passed; len(rest) >= recordHeader; {
			n := recordHeader + (int(rest[3])<<8 | int(rest[4]))
			if n > len(rest) || served && rest[0] == recordCCS || rest[0] == recordData && (served || !early) {
				return
			}
			if h, more, why := Parse(rest[:n]); !more && why == "" && h.Encrypted && !ech {
				t.Fatalf("an encrypted hello passed in % x", passed)
			}
			if got, ok := goReads(rest[:n]); ok && (served || !strings.EqualFold(got, "a.example.com")) {
				t.Fatalf("a hello for %q passed in % x", got, passed)
			} else if ok {
				return // the second hello
			}
			rest = rest[n:]
		}
	})
}
