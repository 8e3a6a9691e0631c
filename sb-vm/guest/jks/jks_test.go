package jks

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func certificate(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func inPEM(ders ...[]byte) (text []byte) {
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return text
}

// read reads a store: the certificates, by their names.
func read(t *testing.T, store []byte) map[string][]byte {
	t.Helper()
	body := store[:len(store)-sha1.Size]
	h := sha1.New()
	h.Write([]byte("\x00c\x00h\x00a\x00n\x00g\x00e\x00i\x00tMighty Aphrodite"))
	h.Write(body)
	if !bytes.Equal(h.Sum(nil), store[len(body):]) {
		t.Fatal("the digest is wrong")
	}
	all := map[string][]byte{}
	r := bytes.NewReader(body[head:])
	text := func() string {
		var n uint16
		binary.Read(r, binary.BigEndian, &n)
		b := make([]byte, n)
		r.Read(b)
		return string(b)
	}
	for range binary.BigEndian.Uint32(body[8:]) {
		var tag, n uint32
		var made int64
		binary.Read(r, binary.BigEndian, &tag)
		name := text()
		binary.Read(r, binary.BigEndian, &made)
		kind := text()
		binary.Read(r, binary.BigEndian, &n)
		der := make([]byte, n)
		if _, err := r.Read(der); err != nil || tag != trusted || kind != "X.509" {
			t.Fatalf("entry %q: tag %d, kind %q, %v", name, tag, kind, err)
		}
		all[name] = der
	}
	if r.Len() > 0 {
		t.Fatalf("%d bytes are left", r.Len())
	}
	return all
}

// TestStore: a new store, one more certificate in it, and the same again.
func TestStore(t *testing.T) {
	a, b, c := certificate(t, "a"), certificate(t, "b"), certificate(t, "c")
	store, err := New(append([]byte("# a comment\n"), inPEM(a, b)...))
	if err != nil {
		t.Fatal(err)
	}
	more, err := Add(store, "sb", c)
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, more)
	if len(got) != 3 || !bytes.Equal(got["system-0"], a) || !bytes.Equal(got["system-1"], b) || !bytes.Equal(got["sb-2"], c) {
		t.Errorf("%d certificates", len(got))
	}
	if again, err := Add(more, "sb", c); err != nil || !bytes.Equal(again, more) {
		t.Errorf("again: %v", err)
	}
	for _, bad := range [][]byte{nil, []byte("x"), {0xfe, 0xed, 0xfe, 0xed}, append([]byte{0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 1}, make([]byte, 100)...), append([]byte{0x30, 0x82}, make([]byte, 100)...)} {
		if _, err := Add(bad, "sb", c); !errors.Is(err, ErrForm) {
			t.Errorf("%x: %v", bad, err)
		}
	}
	if _, err := New([]byte("none")); err == nil {
		t.Error("a store of nothing")
	}
}

// TestKeytool: Java's own tool reads what is written, where there is one.
func TestKeytool(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip("there is no keytool here")
	}
	store, err := New(inPEM(certificate(t, "a")))
	if err != nil {
		t.Fatal(err)
	}
	if store, err = Add(store, "sb", certificate(t, "the-sandbox")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cacerts")
	if err := os.WriteFile(file, store, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(keytool, "-list", "-v", "-keystore", file, "-storepass", "changeit").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "contains 2 entries") || !strings.Contains(string(out), "CN=the-sandbox") || strings.Contains(string(out), "tampered") {
		t.Errorf("%v\n%s", err, out)
	}
}
