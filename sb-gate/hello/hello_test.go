package hello

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sb/lib/reason"
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

func TestParse(t *testing.T) {
	good := record(message1(ext(10, []byte{0, 2, 0, 29}), sni("a.example.com")))
	msg := message1(sni("a.example.com"))
	long := ext(21, make([]byte, 15000))
	for _, c := range []struct {
		id, what string
		in       []byte
		name     string
		why      reason.Code
	}{
		{"", "plain", good, "a.example.com", ""},
		{"B5", "upper case", record(message1(sni("A.Example.COM"))), "a.example.com", ""},
		{"B5", "underscore", record(message1(sni("a_b.example.com"))), "a_b.example.com", ""},
		{"B3", "no name", record(message1(ext(10, nil))), "", ""},
		{"B3", "no extension", record(message1()), "", ""},
		{"B7", "records of one byte", records(msg, 1), "a.example.com", ""},
		{"B8", "15 KB of padding", record(message1(long, sni("a.example.com"))), "a.example.com", ""},
		{"", "early data behind it", join(good, []byte{23, 3, 3, 0, 4, 1, 2, 3, 4}), "a.example.com", ""},
		{"", "record version 3.3", set(good, 2, 3), "a.example.com", ""},

		{"B1", "warning alert first", join([]byte{21, 3, 1, 0, 2, 1, 100}, good), "", reason.HelloMalformed},
		{"B1", "change of cipher first", join([]byte{20, 3, 1, 0, 1, 1}, good), "", reason.HelloMalformed},
		{"B1", "empty record first", join([]byte{22, 3, 1, 0, 0}, good), "", reason.HelloMalformed},
		{"B1", "application data first", join([]byte{23, 3, 1, 0, 1, 0}, good), "", reason.HelloMalformed},
		{"B2", "ech", record(message1(sni("a.example.com"), ext(extECH, []byte{0}))), "", reason.SNIEncrypted},
		{"B2", "ech before the name", record(message1(ext(extECH, nil), sni("a.example.com"))), "", reason.SNIEncrypted},
		{"B2", "esni", record(message1(sni("a.example.com"), ext(extESNI, nil))), "", reason.SNIEncrypted},
		{"B4", "two names", record(message1(ext(0, u16(join(sniEntry(0, "a.example.com"), sniEntry(0, "b.example.com")))))), "", reason.SNIMalformed},
		{"B4", "two extensions", record(message1(sni("a.example.com"), sni("a.example.com"))), "", reason.HelloMalformed},
		{"B4", "other type", record(message1(ext(0, u16(sniEntry(1, "a.example.com"))))), "", reason.SNIMalformed},
		{"B4", "other type first", record(message1(ext(0, u16(join(sniEntry(1, "x"), sniEntry(0, "a.example.com")))))), "", reason.SNIMalformed},
		{"B4", "bytes behind the list", record(message1(ext(0, join(u16(sniEntry(0, "a.example.com")), []byte{0})))), "", reason.SNIMalformed},
		{"B4", "empty extension", record(message1(ext(0, nil))), "", reason.SNIMalformed},
		{"B4", "empty list", record(message1(ext(0, u16(nil)))), "", reason.SNIMalformed},
		{"B5", "NUL", record(message1(sni("denied.example\x00.example.com"))), "", reason.SNIMalformed},
		{"B5", "final dot", record(message1(sni("a.example.com."))), "", reason.SNIMalformed},
		{"B5", "address", record(message1(sni("192.0.2.1"))), "", reason.SNIMalformed},
		{"B5", "address as a number", record(message1(sni("0x7f000001"))), "", reason.SNIMalformed},
		{"B5", "port", record(message1(sni("a.example.com:443"))), "", reason.SNIMalformed},
		{"B5", "wildcard", record(message1(sni("*.example.com"))), "", reason.SNIMalformed},
		{"B5", "empty", record(message1(sni(""))), "", reason.SNIMalformed},
		{"B5", "Kelvin sign", record(message1(sni("\u212a.example.com"))), "", reason.SNIMalformed},
		{"B5", "254 bytes", record(message1(sni(string(bytes.Repeat([]byte("a."), 127))))), "", reason.SNIMalformed},
		{"B8", "more than 16 KiB", records(message1(long, ext(22, make([]byte, 3000)), sni("a.example.com")), 4096), "", reason.HelloTooLong},
		{"B7", "more than 512 records", records(message1(ext(21, make([]byte, 600)), sni("a.example.com")), 1), "", reason.HelloTooLong},
		{"B10", "SSLv2", []byte{0x80, 0x2e, 1, 3, 1, 0, 0x15}, "", reason.HelloMalformed},
		{"", "record version 3.0", set(good, 2, 0), "", reason.HelloMalformed},
		{"", "record version 3.4", set(good, 2, 4), "", reason.HelloMalformed},
		{"", "record of 16385 bytes", join([]byte{22, 3, 1, 0x40, 1}, msg), "", reason.HelloMalformed},
		{"", "server hello", set(good, 5, 2), "", reason.HelloMalformed},
		{"", "more in its record", record(join(msg, []byte{0})), "", reason.HelloMalformed},
		{"", "version 2.0", set(good, 9, 2), "", reason.HelloMalformed},
		{"", "length too short", set(good, 8, good[8]-1), "", reason.HelloMalformed},
		{"", "session of 33", record(join([]byte{1}, u24(join([]byte{3, 3}, make([]byte, 32), u8(make([]byte, 33)), u16([]byte{1, 1}), u8([]byte{0}), u16(sni("a.example.com")))))), "", reason.HelloMalformed},
		{"", "odd suites", record(join([]byte{1}, u24(join([]byte{3, 3}, make([]byte, 32), u8(nil), u16([]byte{1, 1, 1}), u8([]byte{0}), u16(sni("a.example.com")))))), "", reason.HelloMalformed},
		{"", "no suites", record(join([]byte{1}, u24(join([]byte{3, 3}, make([]byte, 32), u8(nil), u16(nil), u8([]byte{0}), u16(sni("a.example.com")))))), "", reason.HelloMalformed},
		{"", "no compression", record(join([]byte{1}, u24(join([]byte{3, 3}, make([]byte, 32), u8(nil), u16([]byte{1, 1}), u8(nil), u16(sni("a.example.com")))))), "", reason.HelloMalformed},
		{"", "bytes behind the extensions", record(join([]byte{1}, u24(join([]byte{3, 3}, make([]byte, 32), u8(nil), u16([]byte{1, 1}), u8([]byte{0}), u16(sni("a.example.com")), []byte{0})))), "", reason.HelloMalformed},
	} {
		h, more, why := Parse(c.in)
		if more || why != c.why || h.Name.String() != c.name {
			t.Errorf("%s %s: name %q, more %v, %q; want %q, %q", c.id, c.what, h.Name, more, why, c.name, c.why)
		}
	}
}

// B6, B7: however a hello is cut into segments and records, it is read once it
// is whole and not before.
func TestCuts(t *testing.T) {
	msg := message1(ext(10, nil), sni("a.example.com"))
	for cut := 1; cut < len(msg); cut++ {
		in := join(record(msg[:cut]), record(msg[cut:]))
		if h, more, why := Parse(in); more || why != "" || h.Name.String() != "a.example.com" || h.Size != len(in) {
			t.Fatalf("two records, cut at %d: %+v, more %v, %q", cut, h, more, why)
		}
		for n := range in {
			if _, more, why := Parse(in[:n]); !more || why != "" {
				t.Fatalf("cut at %d, first %d bytes: more %v, %q", cut, n, more, why)
			}
		}
	}
}

func TestWatch(t *testing.T) {
	second := set(record(message1(sni("a.example.com"))), 2, 3)
	changed := set(record(message1(sni("b.example.com"))), 2, 3)
	ccs := []byte{20, 3, 3, 0, 1, 1}
	data := []byte{23, 3, 3, 0, 3, 9, 9, 9}
	finished := join([]byte{22, 3, 3, 0, 40}, bytes.Repeat([]byte{1}, 40))
	keyExchange := join([]byte{22, 3, 3, 0, 37, 16}, make([]byte, 36))
	for _, c := range []struct {
		what string
		in   []byte
		why  reason.Code
	}{
		{"second hello", join(ccs, second, data), ""},
		{"second hello alone", join(second, data), ""},
		{"application data", data, ""},
		{"tls 1.2", join(keyExchange, ccs, finished, data), ""},
		{"tls 1.2 resumed", join(ccs, finished, data), ""},
		{"not tls any more", []byte("GET / HTTP/1.1\r\n\r\n"), ""},
		{"B12 changed name", join(ccs, changed), reason.HelloChanged},
		{"B12 changed name without ccs", changed, reason.HelloChanged},
		{"B12 changed name in pieces", records(message1(sni("b.example.com")), 1), reason.HelloChanged},
		{"B12 name left out", set(record(message1(ext(10, nil))), 2, 3), reason.HelloChanged},
		{"B12 ech in the second", join(ccs, record(message1(sni("a.example.com"), ext(extECH, nil)))), reason.SNIEncrypted},
		{"B12 long second", join(ccs, records(message1(ext(21, make([]byte, 16000)), ext(22, make([]byte, 1000)), sni("b.example.com")), 4096)), reason.HelloTooLong},
	} {
		for _, chunk := range []int{len(c.in), 1, 7} {
			w := NewWatch(name(t, "a.example.com"))
			var passed []byte
			why := reason.Code("")
			for rest := c.in; len(rest) > 0 && why == ""; {
				n := min(chunk, len(rest))
				var p []byte
				p, why = w.Next(rest[:n])
				passed = append(passed, p...)
				rest = rest[n:]
			}
			if why != c.why {
				t.Errorf("%s, %d bytes at a time: %q, want %q", c.what, chunk, why, c.why)
			}
			if why == "" && (!bytes.Equal(passed, c.in) || !w.Over()) {
				t.Errorf("%s, %d at a time: %d of %d bytes passed, over %v", c.what, chunk, len(passed), len(c.in), w.Over())
			}
			if why != "" && bytes.Contains(passed, []byte("b.example.com")) {
				t.Errorf("%s, %d at a time: the other name passed", c.what, chunk)
			}
		}
	}
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
	if _, _, why := Parse(b); why != reason.SNIEncrypted {
		t.Errorf("ECH: %q", why)
	}
}

var errStop = errors.New("stop")

// goReads is the name that crypto/tls takes from a stream that begins with b;
// ok only if it gets as far as asking for a certificate.
func goReads(b []byte) (name string, ok bool) {
	near, far := net.Pipe()
	go func() { far.Write(b); io.Copy(io.Discard, far) }()
	go func() { time.Sleep(2 * time.Second); far.Close() }()
	defer near.Close()
	defer far.Close()
	near.SetDeadline(time.Now().Add(50 * time.Millisecond))
	tls.Server(near, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, errStop
	}}).Handshake()
	return name, ok
}

// For every stream that crypto/tls takes a name from, we read the same name or
// refuse; never another, and never none.
func FuzzAgainstGo(f *testing.F) {
	f.Add(record(message1(sni("a.example.com"))))
	f.Add(records(message1(sni("a.example.com")), 3))
	f.Add(capture(f, &tls.Config{ServerName: "a.example.com"}))
	f.Add(join([]byte{21, 3, 1, 0, 2, 1, 100}, record(message1(sni("a.example.com")))))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, more, why := Parse(in)
		if more || why != "" {
			return // refused, or held until the time is up
		}
		if got, ok := goReads(in); ok && lower(got) != h.Name.String() {
			t.Fatalf("crypto/tls reads %q, we %q, from % x", got, h.Name, in)
		}
	})
}

func lower(s string) string { return string(bytes.ToLower([]byte(s))) }

// What the watch passes on is what came, in order, and nothing is read twice.
func FuzzWatch(f *testing.F) {
	f.Add(record(message1(sni("a.example.com"))), 3)
	f.Add([]byte{20, 3, 3, 0, 1, 1, 22, 3, 3, 0, 1, 1}, 1)
	f.Fuzz(func(t *testing.T, in []byte, chunk int) {
		if chunk < 1 {
			chunk = 1
		}
		w := NewWatch(name(t, "a.example.com"))
		var passed []byte
		for rest := in; len(rest) > 0; {
			n := min(chunk, len(rest))
			p, why := w.Next(rest[:n])
			if why != "" {
				return
			}
			passed = append(passed, p...)
			rest = rest[n:]
		}
		if !bytes.HasPrefix(in, passed) {
			t.Fatalf("% x came out as % x", in, passed)
		}
	})
}
