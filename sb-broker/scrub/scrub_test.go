package scrub

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

const (
	secret      = "sk-real-/+=?&\"<é>0123456789"
	placeholder = "sk-ant-placeholder"
)

func testSet() *Set { return New([]Pair{{[]byte(secret), []byte(placeholder)}}) }

// forms are ways to write s.
func written(s string) map[string]string {
	j, _ := json.Marshal("token is " + s + ".")
	return map[string]string{
		"plain":        "the token is " + s + ", is it not?",
		"json":         string(j),
		"query":        "?a=" + url.QueryEscape(s) + "&b=c",
		"path":         "/x/" + url.PathEscape(s) + "/y",
		"lower escape": lowerEscapes("?a=" + url.QueryEscape(s) + "&b=c"),
		"base64 0":     base64.StdEncoding.EncodeToString([]byte(s)),
		"base64 1":     base64.StdEncoding.EncodeToString([]byte(":" + s + "tail")),
		"base64 2":     base64.StdEncoding.EncodeToString([]byte("x:" + s + "tail")),
		"base64url 1":  base64.URLEncoding.EncodeToString([]byte("user:" + s + "xy")),
		"html":         "<p>" + html.EscapeString(s) + "</p>",
		"html names":   "<p>" + htmlNames.Replace(s) + "</p>",
		"html numbers": "<p>" + htmlNumbers.Replace(s) + "</p>",
		"decimal":      "<p>" + everyByte(s, "&#%d;") + "</p>",
		"hexadecimal":  "<p>" + everyByte(s, "&#x%x;") + everyByte(s, "&#x%X;") + "</p>",
		"upper case":   strings.ToUpper("the token is " + s + "!"),
		"twice":        s + s + " and " + s,
	}
}

// TestE12Forms: in whatever way a server writes the secret, split at any byte, it
// comes out as the placeholder; the same text without it is left as it is.
func TestE12Forms(t *testing.T) {
	s := testSet()
	for name, text := range written(secret) {
		whole, found := s.Replace(text)
		if !found || strings.Contains(whole, secret) {
			t.Errorf("%s: %q was replaced by %q", name, text, whole)
		}
		if strings.HasPrefix(name, "base64") {
			enc := base64.StdEncoding
			if strings.Contains(name, "url") {
				enc = base64.URLEncoding
			}
			if got, err := enc.DecodeString(whole); err == nil && bytes.Contains(got, []byte(secret)[3:]) {
				t.Errorf("%s: %q decodes to %q", name, whole, got)
			}
		} else if want := written(placeholder)[name]; whole != want {
			t.Errorf("%s: %q, want %q", name, whole, want)
		}
		for i := range len(text) + 1 {
			n := 0
			r := NewReader(func() *Set { return s }, io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:])), func() { n++ })
			if got, err := io.ReadAll(r); err != nil || string(got) != whole || n == 0 {
				t.Fatalf("%s, split at %d: %q, %v, found %d times, want %q", name, i, got, err, n, whole)
			}
		}
		r := NewReader(func() *Set { return s }, iotest.OneByteReader(strings.NewReader(text)), func() {})
		if got, _ := io.ReadAll(r); string(got) != whole {
			t.Errorf("%s, byte by byte: %q, want %q", name, got, whole)
		}
	}
	for name, text := range written("sk-fake-/+=?&\"<é>0123456789") {
		if got, found := s.Replace(text); found || got != text {
			t.Errorf("%s: %q was replaced by %q", name, text, got)
		}
	}
}

// TestE12Wrapped: base64 in lines of 60 or 76 characters is found wherever in them the
// secret stands and whatever ends them; what it decodes to is the placeholder. Other
// text of the same form passes.
func TestE12Wrapped(t *testing.T) {
	for _, real := range []string{secret, strings.Repeat(secret, 4)} {
		s := New([]Pair{{[]byte(real), []byte(placeholder)}})
		for _, end := range []string{"\n", "\r\n", `\n`, `\r\n`} {
			for _, width := range []int{60, 76} {
				for before := range 80 {
					lines := func(of string) string {
						return string(cut(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("b", before)+of+strings.Repeat("a", 90))), width, width, end))
					}
					text := lines(real)
					got, found := s.Replace(text)
					plain, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(got, end, ""))
					if !found || bytes.Contains(plain, []byte(real)[3:len(real)-3]) || err == nil && !bytes.Contains(plain, []byte(placeholder)[3:len(placeholder)-3]) {
						t.Fatalf("%q, lines of %d, behind %d: %q decodes to %q, %v", end, width, before, got, plain, err)
					}
					r := NewReader(func() *Set { return s }, iotest.OneByteReader(strings.NewReader(text)), func() {})
					if read, _ := io.ReadAll(r); string(read) != got {
						t.Fatalf("byte by byte: %q, want %q", read, got)
					}
					other := lines("x" + real[1:len(real)-1] + "x")
					if got, found := s.Replace(other); found {
						t.Fatalf("%q was replaced by %q", other, got)
					}
				}
			}
		}
	}
}

// TestPromptness: what cannot be the beginning of a secret is not held back.
func TestPromptness(t *testing.T) {
	s := testSet()
	pr, pw := io.Pipe()
	r := NewReader(func() *Set { return s }, pr, func() {})
	buf := make([]byte, 100)
	for _, c := range []struct{ in, out string }{
		{"data: 1\n\n", "data: 1\n\n"}, {"data: sk-re", "data: "}, {"ally\n\n", "sk-really\n\n"},
	} {
		go pw.Write([]byte(c.in))
		if n, err := r.Read(buf); err != nil || string(buf[:n]) != c.out {
			t.Errorf("after %q: %q, %v, want %q", c.in, buf[:n], err, c.out)
		}
	}
	go func() { pw.Write([]byte("sk-real")); pw.Close() }()
	if got, err := io.ReadAll(r); err != nil || string(got) != "sk-real" {
		t.Errorf("at the end: %q, %v", got, err)
	}
}

// TestShort: what is too short is not looked for, and its set is empty.
func TestShort(t *testing.T) {
	if !New([]Pair{{[]byte("1234567"), []byte("p")}}).Empty() || !New(nil).Empty() || New([]Pair{{[]byte("12345678"), []byte("p")}}).Empty() {
		t.Error("Least does not hold")
	}
}

// naive is what Replace should do, the slow way.
func naive(s *Set, b []byte) []byte {
	var out []byte
next:
	for i := 0; i < len(b); {
		for _, f := range s.forms {
			if bytes.HasPrefix(b[i:], f.find) {
				out = append(out, f.put...)
				i += len(f.find)
				continue next
			}
		}
		out = append(out, b[i])
		i++
	}
	return out
}

// FuzzReader: whatever the secrets and the text, in whatever pieces it comes, no
// secret is in what comes out that the placeholders did not bring, and it is what
// the slow way makes of it.
func FuzzReader(f *testing.F) {
	f.Add("secret-1", "secret-12", "xsecret-12secret-1", uint16(3))
	f.Add("aaaaaaaa", "aaaaaaab", "aaaaaaaaaaaaaaaab", uint16(1))
	f.Add("c2VjcmV0c2VjcmV0", "secretsecret", "c2VjcmV0c2VjcmV0", uint16(2))
	f.Fuzz(func(t *testing.T, one, two, text string, piece uint16) {
		if len(one) > 64 || len(two) > 64 || len(text) > 4096 {
			return
		}
		s := New([]Pair{{[]byte(one), []byte("P1")}, {[]byte(two), []byte("P2")}})
		if s.Empty() {
			return
		}
		want := naive(s, []byte(text))
		if got, found := s.Replace(text); got != string(want) || found != (string(want) != text) {
			t.Fatalf("Replace: %q, %v, want %q", got, found, want)
		}
		var parts []io.Reader
		for b := []byte(text); len(b) > 0; {
			n := min(len(b), 1+int(piece)%97)
			parts, b = append(parts, bytes.NewReader(b[:n])), b[n:]
		}
		got, err := io.ReadAll(NewReader(func() *Set { return s }, io.MultiReader(parts...), func() {}))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.forms {
			if bytes.Contains(got, f.find) && !bytes.Contains(want, f.find) {
				t.Fatalf("%q in pieces is %q, which holds %q", text, got, f.find)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	s := New([]Pair{{[]byte("sk-ant-api03-Zk3vQ8sLw0XyTn5RbJ7hUeAqGfDcVm2i9oPt4KdWjHxMlCrSgYzEuBpN1aFv6"), []byte("sk-ant-placeholder")}})
	bytesOf := make([]byte, 1<<20)
	rand.Read(bytesOf)
	event := []byte("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" the quick brown fox 2026\"}}\n\n")
	for name, data := range map[string][]byte{"random": bytesOf, "events": bytes.Repeat(event, 1<<20/len(event)), "base64": []byte(base64.StdEncoding.EncodeToString(bytesOf))} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				io.Copy(io.Discard, struct{ io.Reader }{NewReader(func() *Set { return s }, bytes.NewReader(data), func() {})})
			}
		})
	}
}
