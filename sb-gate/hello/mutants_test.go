package hello

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"slices"
	"testing"

	"sb/lib/reason"
)

// parts is a hello taken apart: what stands before its extensions, and those.
type parts struct {
	head []byte
	exts [][]byte // type, length and data of each
}

func takeApart(t *testing.T, in []byte) parts {
	t.Helper()
	body := in[recordHeader+4:]
	at := 34
	at += 1 + int(body[at])
	at += 2 + int(binary.BigEndian.Uint16(body[at:]))
	at += 1 + int(body[at])
	p := parts{head: body[:at]}
	for rest := body[at+2:]; len(rest) > 0; {
		n := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		p.exts = append(p.exts, rest[:n])
		rest = rest[n:]
	}
	if got := p.bytes(); !bytes.Equal(got, in) {
		t.Fatalf("% x put together again is % x", in, got)
	}
	return p
}

// bytes puts it together, every length agreeing.
func (p parts) bytes() []byte {
	return record(join([]byte{typeClientHello}, u24(join(p.head, u16(join(p.exts...))))))
}

// with is p with the extension at i replaced by others.
func (p parts) with(i int, exts ...[]byte) []byte {
	return parts{p.head, slices.Concat(p.exts[:i], exts, p.exts[i+1:])}.bytes()
}

// captures is what real clients send, for a.example.com.
func captures(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	for what, conf := range map[string]*tls.Config{
		"1.3":  {ServerName: "a.example.com", NextProtos: []string{"h2", "http/1.1"}},
		"1.2":  {ServerName: "a.example.com", MaxVersion: tls.VersionTLS12},
		"1.0":  {ServerName: "a.example.com", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10},
		"1.3c": {ServerName: "a.example.com", MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}},
	} {
		all[what] = capture(t, conf)
	}
	return all
}

// TestB4EachExtension: each extension of a real hello, broken in each way. None
// changes the name that is read, and crypto/tls never reads another one.
func TestB4EachExtension(t *testing.T) {
	mutants, both := 0, 0
	for what, in := range captures(t) {
		p := takeApart(t, in)
		for i, e := range p.exts {
			typ, data := binary.BigEndian.Uint16(e), e[4:]
			isName := typ == extServerName
			last := e
			if len(data) > 0 {
				last = ext(typ, data[:len(data)-1])
			}
			for _, c := range []struct {
				what string
				in   []byte
				want string // "" is the name, or a refusal
			}{
				{"twice", p.with(i, e, e), string(reason.HelloMalformed)},
				{"twice, another between", p.with(i, e, ext(65001, make([]byte, 7)), e), string(reason.HelloMalformed)},
				{"left out", p.with(i), either(isName, "none", "a.example.com")},
				{"emptied", p.with(i, ext(typ, nil)), either(isName, string(reason.SNIMalformed), "a.example.com")},
				{"cut by one byte", p.with(i, last), either(isName, string(reason.SNIMalformed), "a.example.com")},
				{"with one byte more", p.with(i, ext(typ, append(bytes.Clone(data), 0))), either(isName, string(reason.SNIMalformed), "a.example.com")},
				{"of ones", p.with(i, ext(typ, bytes.Repeat([]byte{0xff}, len(data)))), either(isName, string(reason.SNIMalformed), "a.example.com")},
				{"of 64 KB in length", p.with(i, set(e, 2, 0xff, 0xff)), string(reason.HelloMalformed)},
				{"one longer than it is", p.with(i, lengthened(e, 1)), ""},
				{"one shorter than it is", p.with(i, lengthened(e, -1)), ""},
				{"as ECH", p.with(i, e, ext(extECH, data)), string(reason.SNIEncrypted)},
				{"as the old ECH", p.with(i, e, ext(extESNI, data)), string(reason.SNIEncrypted)},
				{"first", parts{p.head, slices.Concat([][]byte{e}, p.exts[:i], p.exts[i+1:])}.bytes(), "a.example.com"},
				{"last", parts{p.head, slices.Concat(p.exts[:i], p.exts[i+1:], [][]byte{e})}.bytes(), "a.example.com"},
			} {
				got := outcome(c.in)
				if c.want != "" && got != c.want || accepted(got) && got != "a.example.com" && got != "none" {
					t.Errorf("%s, extension %d %s: %s, want %s", what, typ, c.what, got, c.want)
				}
				mutants++
				if agreesWithGo(t, c.in) {
					both++
				}
			}
		}
	}
	if mutants < 400 || both < 100 {
		t.Errorf("%d hellos, of which crypto/tls takes %d too", mutants, both)
	}
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// lengthened is an extension that says another length than it has.
func lengthened(e []byte, by int) []byte {
	n := int(binary.BigEndian.Uint16(e[2:])) + by
	return set(e, 2, byte(n>>8), byte(n))
}

// TestB7EachByte: each byte of a real hello set to each of some values: the name
// that is read is the one that stands there, or none is.
func TestB7EachByte(t *testing.T) {
	for what, in := range captures(t) {
		where := bytes.Index(in, []byte("a.example.com"))
		for i := range in {
			for _, v := range []byte{0, 1, 0xff, in[i] + 1, in[i] - 1, in[i] ^ 0x80, in[i] ^ 0x20, '.', 'x'} {
				b := set(in, i, v)
				got := outcome(b)
				inName := i >= where && i < where+len("a.example.com")
				if accepted(got) && got != "a.example.com" && got != "none" && !inName {
					t.Errorf("%s, byte %d set to %#x: %s", what, i, v, got)
				}
				agreesWithGo(t, b)
			}
		}
	}
}
