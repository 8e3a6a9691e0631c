package hello

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"

	"sb/lib/tlstext"
)

// TestB12Answers: what servers say to a first hello, at once and as it comes.
func TestB12Answers(t *testing.T) {
	for _, v := range vectors(t, "answers.txt") {
		want := map[string][2]bool{"served": {true, false}, "open": {false, false}, "more": {false, true}}[v.want]
		if served, more := Served(v.in); served != want[0] || more != want[1] {
			t.Errorf("%s: served %v, more %v, want %s", v.what, served, more, v.want)
		}
		for n := range v.in {
			served, more := Served(v.in[:n])
			if !more && (served != want[0] || want[1]) || more && n >= MaxAnswer {
				t.Fatalf("%s: served %v, more %v of its first %d bytes", v.what, served, more, n)
			}
		}
	}
}

// TestB12RealAnswers: a server that takes the hello, and one that asks for a
// second one.
func TestB12RealAnswers(t *testing.T) {
	for _, c := range []struct {
		what   string
		conf   *tls.Config
		served bool
	}{
		{"TLS 1.3", &tls.Config{}, true},
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, true},
		{"TLS 1.3 with another group", &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}}, false},
	} {
		near, far := net.Pipe()
		c.conf.Certificates = []tls.Certificate{selfSigned(t)}
		go tls.Server(far, c.conf).Handshake()
		go near.Write(capture(t, &tls.Config{ServerName: "a.example.com"}))
		b := make([]byte, 4096)
		n, err := near.Read(b)
		near.Close()
		if served, more := Served(b[:n]); err != nil || served != c.served || more {
			t.Errorf("%s: served %v, more %v, %v: % x", c.what, served, more, err, b[:n])
		}
	}
}

// FuzzServed: what was decided stays so whatever follows, it is decided within the
// bound, and no HelloRetryRequest is taken for more, whatever records it is in.
func FuzzServed(f *testing.F) {
	for _, v := range vectors(f, "answers.txt") {
		f.Add(v.in, 3)
	}
	retry, err := tlstext.Bytes("msg:2{0303 \"" + `\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c` + "\" 00}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		n = min(max(n, 0), len(in))
		before, more := Served(in[:n])
		after, moreAfter := Served(in)
		if !more && (moreAfter || after != before) || more && n >= MaxAnswer {
			t.Fatalf("%v, more %v of %d bytes, then %v, more %v of % x", before, more, n, after, moreAfter, in)
		}
		if served, _ := Served(append(bytes.Repeat([]byte{21, 3, 3, 0, 2, 1, 90}, n%9), records(retry, max(n, 1))...)); served {
			t.Fatalf("a HelloRetryRequest in records of %d bytes is taken for a ServerHello", n)
		}
	})
}

func selfSigned(t *testing.T) tls.Certificate {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example.com"}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}
