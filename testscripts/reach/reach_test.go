package reach

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sb/lib/profile"
)

// TestProfile: a step for this network comes before those of any built-in profile,
// and changes nothing else of it; where there is nothing special, nothing is changed.
func TestProfile(t *testing.T) {
	set := profile.Open(t.TempDir())
	for _, name := range Agents {
		text, _, err := set.Text(name)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := (&Means{}).Profile(string(text)); err != nil || same != string(text) {
			t.Errorf("%s: with nothing special: %v, %s", name, err, same)
		}
		m := &Means{Trust: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", Registry: "https://packages.example/npm/"}
		changed, err := m.Profile(string(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := profile.Parse(name, "", []byte(changed))
		if err != nil {
			t.Fatal(err)
		}
		want, err := profile.Parse(name, "", text)
		if err != nil {
			t.Fatal(err)
		}
		first := got.Install[0]
		if strings.TrimSpace(first) != strings.TrimSpace(m.Step()) || !strings.Contains(first, "AA==\n") || !strings.Contains(first, "registry 'https://packages.example/npm/'\n") {
			t.Errorf("%s: the first step is\n%s", name, first)
		}
		got.Install = got.Install[1:]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: it is %+v, want %+v", name, got, want)
		}
	}
	if _, err := (&Means{Registry: "x"}).Profile("about = \"\"\n"); err == nil {
		t.Error("a profile without steps was taken")
	}
}

// TestConfig: rules are there only if a name leads to no public address.
func TestConfig(t *testing.T) {
	if got := (&Means{}).Config(); got != "" {
		t.Errorf("with nothing special: %q", got)
	}
	m := &Means{Allow: []string{"a.example@192.0.2.1", "b.example@192.0.2.2"}}
	if got := m.Config(); got != "[rules]\nallow = [\"a.example@192.0.2.1\", \"b.example@192.0.2.2\"]\n" {
		t.Errorf("%q", got)
	}
}

func TestHosts(t *testing.T) {
	got := Hosts([]string{"https://a.example/x/", "http://b.example:8080", "direct", "off", "", "https://a.example", "file:///x"})
	if !slices.Equal(got, []string{"a.example", "b.example"}) {
		t.Errorf("%q", got)
	}
}

// TestTrust: of the certificates in some files those count that the distribution does
// not have, each once.
func TestTrust(t *testing.T) {
	dir := t.TempDir()
	one, two, three := certificate(t, 1), certificate(t, 2), certificate(t, 3)
	file := func(name string, texts ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(texts, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("a.crt", "# one\n", one)
	file("other.txt", three)
	if got := files(dir); !slices.Equal(got, []string{filepath.Join(dir, "a.crt")}) {
		t.Errorf("files: %v", got)
	}
	known, err := certificates(files(dir))
	if err != nil || len(known) != 1 {
		t.Fatalf("known: %d, %v", len(known), err)
	}
	found, err := certificates([]string{file("bundle", one, two, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"), file("more", three, two), "", filepath.Join(dir, "none")})
	if err != nil {
		t.Fatal(err)
	}
	if got := without(found, known); got != two+three {
		t.Errorf("new are\n%swant\n%s", got, two+three)
	}
	if got := without(known, known); got != "" {
		t.Errorf("nothing new is %q", got)
	}
	if _, err := certificates([]string{dir}); err == nil {
		t.Error("a directory was read")
	}
}

// certificate makes one, in PEM.
func certificate(t *testing.T, serial int64) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
