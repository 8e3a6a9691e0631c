//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sb/lib/audit"
	"sb/lib/manifest"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

// testServer answers by rules; those that begin with "!" deny. It asks nobody.
func testServer(t testing.TB, rules ...string) *server {
	t.Helper()
	m, err := manifest.Parse("test.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	src := rule.Source{Origin: "test"}
	for _, r := range rules {
		if deny, ok := strings.CutPrefix(r, "!"); ok {
			src.Deny = append(src.Deny, deny)
		} else {
			src.Allow = append(src.Allow, r)
		}
	}
	set, err := rule.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return newServer(m, set)
}

// words stand for bytes in the vectors.
var words = map[string]string{
	"Q": "12ab01000001000000000000", "QE": "12ab01000001000000000001",
	"A": "0001", "PTR": "000c", "TXT": "0010", "AAAA": "001c", "SVCB": "0040", "HTTPS": "0041", "IN": "0001", "CH": "0003",
}

func assemble(text string) ([]byte, error) {
	var out []byte
	for _, w := range strings.Fields(text) {
		switch {
		case words[w] != "":
			w = words[w]
		case strings.HasPrefix(w, "OPT:"):
			var size int
			if _, err := fmt.Sscan(w[4:], &size); err != nil {
				return nil, err
			}
			w = fmt.Sprintf("000029%04x000000000000", size)
		case strings.HasPrefix(w, "@"):
			for _, l := range strings.Split(w[1:], ".") {
				if l != "" {
					out = append(append(out, byte(len(l))), l...)
				}
			}
			w = "00"
		}
		b, err := hex.DecodeString(w)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

var codes = map[dnsmessage.RCode]string{0: "noerror", 1: "formerr", 2: "servfail", 3: "nxdomain", 4: "notimp", 5: "refused"}

// describe is what came of a query, as the vectors write it.
func describe(query []byte, a wire.Answer) (string, error) {
	verdict, name := "deny", strings.Fields(audit.Line{Name: a.Name}.String())[3]
	if a.Allow {
		verdict = "allow"
	}
	if a.Message == nil {
		return "drop " + string(a.Reason), nil
	}
	var m dnsmessage.Message
	if err := m.Unpack(a.Message); err != nil {
		return "", fmt.Errorf("the answer % x: %w", a.Message, err)
	}
	h := m.Header
	if h.ID != binary.BigEndian.Uint16(query) || !h.Response || h.OpCode != dnsmessage.OpCode(query[2]>>3&15) || !h.RecursionAvailable || h.RecursionDesired != (query[2]&1 == 1) || h.Authoritative || h.AuthenticData {
		return "", fmt.Errorf("the answer's header is %+v", h)
	}
	got := []string{codes[h.RCode], verdict, string(a.Reason), name, a.Type}
	for _, r := range m.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			got = append(got, netip.AddrFrom4(body.A).String())
			if a.Handle != netip.AddrFrom4(body.A) || r.Header.TTL != ttl {
				return "", fmt.Errorf("the answer has %v for %v, the wire %s", body.A, r.Header.TTL, a.Handle)
			}
		case *dnsmessage.PTRResource:
			got = append(got, "ptr:"+body.PTR.String())
		default:
			return "", fmt.Errorf("the answer holds a %T", body)
		}
	}
	if len(m.Questions) == 0 {
		got = append(got, "noquestion")
	} else if q := questionBytes(query); !bytes.HasPrefix(a.Message[12:], q) {
		return "", fmt.Errorf("the question % x is repeated as % x", q, a.Message[12:])
	}
	return strings.Join(append(got, extended(m)...), " "), nil
}

// extended is what the EDNS record says.
func extended(m dnsmessage.Message) []string {
	for _, r := range m.Additionals {
		if opt, ok := r.Body.(*dnsmessage.OPTResource); ok {
			if r.Header.Class != maxUDP {
				return []string{fmt.Sprintf("opt-of-%d", r.Header.Class)}
			}
			for _, o := range opt.Options {
				if o.Code == 15 && len(o.Data) > 2 && o.Data[1] == 15 {
					return []string{"ede:" + strings.TrimPrefix(string(o.Data[2:]), "sb: ")}
				}
			}
			return []string{"opt"}
		}
	}
	return nil
}

// questionBytes is the first question of a message, as it stands there.
func questionBytes(msg []byte) []byte {
	i := 12
	for i < len(msg) && msg[i] != 0 {
		i += int(msg[i]) + 1
	}
	return msg[12:min(i+5, len(msg))]
}

// TestVectors: the questions of testdata/queries.txt, each to a server of its own.
func TestVectors(t *testing.T) {
	file, err := os.Open("testdata/queries.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var rules []string
	n := 0
	for in := bufio.NewScanner(file); in.Scan(); {
		text := strings.TrimSpace(in.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if verb, r, _ := strings.Cut(text, " "); verb == "allow" || verb == "deny" {
			if !strings.Contains(text, "|") {
				rules = append(rules, map[string]string{"allow": "", "deny": "!"}[verb]+r)
				continue
			}
		}
		part := strings.SplitN(text, " | ", 3)
		if len(part) != 3 {
			t.Fatalf("not a vector: %s", text)
		}
		query, err := assemble(part[1])
		if err != nil {
			t.Fatalf("%s: %v", part[0], err)
		}
		n++
		a, rest := testServer(t, rules...).decide(wire.Query{ID: 7, Message: query})
		if rest != nil || a.ID != 7 {
			t.Errorf("%s: it would ask somebody", part[0])
		}
		got, err := describe(query, a)
		if err != nil {
			t.Errorf("%s: %v", part[0], err)
		} else if want := strings.Join(strings.Fields(part[2]), " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", part[0], got, want)
		}
	}
	if n < 120 {
		t.Errorf("%d vectors", n)
	}
}

// TestTypeSweep: of all types of an allowed name, A has an address; nothing but
// the opted-in ones is asked of anybody; a denied name has none at all.
func TestTypeSweep(t *testing.T) {
	s := testServer(t, "a.example", "dns:txt.example")
	for typ := range 1 << 16 {
		for name, allowed := range map[string]bool{"a.example": true, "denied.example": false} {
			q, err := assemble(fmt.Sprintf("Q @%s %04x IN", name, typ))
			if err != nil {
				t.Fatal(err)
			}
			a, rest := s.decide(wire.Query{Message: q})
			if rest != nil {
				t.Fatalf("type %d of %s is asked upstream", typ, name)
			}
			var m dnsmessage.Message
			if err := m.Unpack(a.Message); err != nil {
				t.Fatalf("type %d: %v", typ, err)
			}
			answers := 0
			if allowed && typ == 1 {
				answers = 1
			}
			wantAllow := allowed && (typ == 1 || typ == 28 || typ == 64 || typ == 65)
			if len(m.Answers) != answers || (m.RCode == 0) != allowed || a.Allow != wantAllow {
				t.Fatalf("type %d of %s: %v, %d answers, allow %v", typ, name, m.RCode, len(m.Answers), a.Allow)
			}
		}
	}
	for typ, asked := range map[int]bool{1: false, 15: true, 16: true, 33: true, 2: false, 255: false} {
		q, _ := assemble(fmt.Sprintf("Q @txt.example %04x IN", typ))
		if _, rest := s.decide(wire.Query{Message: q}); (rest != nil) != asked {
			t.Errorf("type %d of a name with a dns: rule: asked %v", typ, rest != nil)
		}
	}
}

// TestReverse: a handle that stands for an allowed name has a name.
func TestReverse(t *testing.T) {
	s := testServer(t, "a.example", "b.example")
	for _, c := range []struct{ query, want string }{
		{"Q @0.1.18.198.in-addr.arpa PTR IN", "nxdomain deny no-allow-rule 0.1.18.198.in-addr.arpa ptr"},
		{"Q @a.example A IN", "noerror allow allow-rule a.example a 198.18.1.0"},
		{"Q @b.example A IN", "noerror allow allow-rule b.example a 198.18.1.1"},
		{"Q @0.1.18.198.in-addr.arpa PTR IN", "noerror allow allow-rule a.example ptr ptr:a.example."},
		{"Q @1.1.18.198.IN-ADDR.arpa PTR IN", "noerror allow allow-rule b.example ptr ptr:b.example."},
	} {
		expect(t, s, c.query, c.want)
	}
	s.rules.Store(testServer(t, "b.example").rules.Load())
	expect(t, s, "Q @0.1.18.198.in-addr.arpa PTR IN", "nxdomain deny no-allow-rule 0.1.18.198.in-addr.arpa ptr")
	expect(t, s, "Q @a.example A IN", "nxdomain deny no-allow-rule a.example a")
	expect(t, s, "Q @1.1.18.198.in-addr.arpa PTR IN", "noerror allow allow-rule b.example ptr ptr:b.example.")
}

func expect(t *testing.T, s *server, query, want string) {
	t.Helper()
	q, err := assemble(query)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.decide(wire.Query{Message: q})
	if got, err := describe(q, a); err != nil || got != want {
		t.Errorf("%s:\n got %s, %v\nwant %s", query, got, err, want)
	}
}

// TestDeniedRefused: the manifest may ask for another answer to what is denied.
func TestDeniedRefused(t *testing.T) {
	m, err := manifest.Parse("test.toml", []byte("[dns]\ndenied = \"refused\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rule.Load(rule.Source{Allow: []string{"a.example"}})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(m, set)
	expect(t, s, "Q @denied.example A IN", "refused deny no-allow-rule denied.example a")
	expect(t, s, "Q @a.example A IN", "noerror allow allow-rule a.example a 198.18.1.0")
}

// No rules, or none yet, deny everything.
func TestA18NoRules(t *testing.T) {
	s := testServer(t)
	expect(t, s, "Q @a.example A IN", "nxdomain deny no-allow-rule a.example a")
	s.rules.Store(nil)
	expect(t, s, "Q @a.example A IN", "nxdomain deny no-allow-rule a.example a")
	expect(t, s, "Q @a.example TXT IN", "nxdomain deny no-allow-rule a.example txt")
	expect(t, testServer(t, "a.example"), "Q @a.example A IN", "noerror allow allow-rule a.example a 198.18.1.0")
}

// allows is the rules of FuzzQuery once more, by itself: it compares labels from
// the right, as bytes of the message.
func allows(labels [][]byte) bool {
	under := func(want ...string) bool {
		if len(labels) < len(want) {
			return false
		}
		for i := range want {
			l := labels[len(labels)-1-i]
			if !strings.EqualFold(string(l), want[len(want)-1-i]) || strings.ContainsFunc(string(l), func(r rune) bool { return r > 127 }) {
				return false
			}
		}
		return true
	}
	for _, l := range labels {
		for i, c := range l {
			ok := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' && i > 0 && i < len(l)-1
			if !ok {
				return false
			}
		}
	}
	return len(labels) == 2 && under("a", "example") || under("w", "example") && !(len(labels) == 3 && under("no", "w", "example"))
}

// Whatever the bytes: no panic; an answer is one that a client can read, to the
// very question that was asked; what is allowed is allowed by allows too, and an
// address is given to nothing else.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{"Q @a.example A IN", "QE @x.w.example TXT IN OPT:1232", "Q @no.w.example A IN", "Q c00c A IN", "Q 03782e77 076578616d706c65 00 A IN",
		"12ab 0100 0002 0000 0000 0000 @a.example A IN c00c A IN", "Q @0.1.18.198.in-addr.arpa PTR IN"} {
		b, err := assemble(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
	}
	s := testServer(f, "a.example", "*.w.example", "!no.w.example")
	f.Fuzz(func(t *testing.T, msg []byte, stream bool) {
		asked := bytes.Clone(msg)
		a, rest := s.decide(wire.Query{Message: msg, Stream: stream})
		if rest != nil {
			t.Fatal("it would ask somebody")
		}
		if a.Message == nil {
			if a.Allow || a.Handle.IsValid() {
				t.Errorf("no answer, and %+v", a)
			}
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(a.Message); err != nil {
			t.Fatalf("% x is answered by % x: %v", asked, a.Message, err)
		}
		if len(m.Questions) > 0 && !bytes.HasPrefix(a.Message[12:], questionBytes(asked)) {
			t.Errorf("% x is answered by % x", asked, a.Message)
		}
		if len(a.Message) > maxUDP {
			t.Errorf("an answer of %d bytes", len(a.Message))
		}
		ls, err := labels(asked[12:])
		isPTR := len(m.Answers) == 1 && m.Answers[0].Header.Type == dnsmessage.TypePTR
		if ok := err == nil && allows(ls); a.Allow && !ok && !isPTR || len(m.Answers) > 0 && !a.Allow {
			t.Errorf("% x: allow %v with %d answers, the rules say %v", asked, a.Allow, len(m.Answers), ok)
		}
	})
}
