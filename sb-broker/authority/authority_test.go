package authority

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func verify(a *Authority, c *x509.Certificate, name string, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.PEM())
	_, err := c.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at})
	return err
}

// TestE18Authority: the authority is for the bound names alone, signs no other
// authority, and its leaves are short-lived; a guest's clock may be behind.
func TestE18Authority(t *testing.T) {
	a, err := New([]string{"api.example", "b.example"})
	if err != nil {
		t.Fatal(err)
	}
	c := a.cert
	if !c.IsCA || !c.MaxPathLenZero || c.MaxPathLen != 0 || !c.PermittedDNSDomainsCritical || len(c.PermittedDNSDomains) != 2 || c.KeyUsage != x509.KeyUsageCertSign {
		t.Errorf("the authority is %+v", c)
	}
	leaf, err := a.Leaf("api.example")
	if err != nil {
		t.Fatal(err)
	}
	for at, ok := range map[time.Duration]bool{0: true, -47 * time.Hour: true, 71 * time.Hour: true, -49 * time.Hour: false, 73 * time.Hour: false} {
		if err := verify(a, leaf.Leaf, "api.example", time.Now().Add(at)); (err == nil) != ok {
			t.Errorf("at %v: %v", at, err)
		}
	}
	if err := verify(a, leaf.Leaf, "b.example", time.Now()); err == nil {
		t.Error("a leaf is good for another name")
	}
	if again, _ := a.Leaf("api.example"); again != leaf {
		t.Error("a leaf is made twice")
	}
	a.now = func() time.Time { return time.Now().Add(13 * time.Hour) }
	if again, _ := a.Leaf("api.example"); again == leaf {
		t.Error("a leaf is not renewed")
	}
}

// TestClockOff: a guest whose clock is a day behind or ahead believes the certificate,
// also when the host's is set right by a day, whichever way, while the sandbox runs.
func TestClockOff(t *testing.T) {
	a, err := New([]string{"api.example"})
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for _, host := range []time.Duration{0, 11 * time.Hour, day, -day, 0} {
		a.now = func() time.Time { return time.Now().Add(host) }
		leaf, err := a.Leaf("api.example")
		if err != nil {
			t.Fatal(err)
		}
		for _, guest := range []time.Duration{0, -day, day} {
			if err := verify(a, leaf.Leaf, "api.example", a.now().Add(guest)); err != nil {
				t.Errorf("the host off by %v, the guest by %v: %v", host, guest, err)
			}
		}
		if err := verify(a, leaf.Leaf, "api.example", a.now().Add(5*day)); err == nil {
			t.Error("it is good for ever")
		}
	}
}

// TestE19Constraints: what the key signs for another name is believed by nobody:
// not by Go and not by OpenSSL.
func TestE19Constraints(t *testing.T) {
	a, err := New([]string{"api.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Leaf("other.example"); err == nil {
		t.Error("a leaf for another name was made")
	}
	for _, c := range []struct {
		name string
		ok   bool
	}{{"api.example", true}, {"other.example", false}, {"api.example.evil.test", false}} {
		leaf, err := a.sign(c.name) // as a thief of the key would
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(a, leaf.Leaf, c.name, time.Now()); (err == nil) != c.ok {
			t.Errorf("Go on %s: %v", c.name, err)
		}
		dir := t.TempDir()
		os.WriteFile(filepath.Join(dir, "ca.pem"), a.PEM(), 0o600)
		os.WriteFile(filepath.Join(dir, "leaf.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}), 0o600)
		if _, err := exec.LookPath("openssl"); err != nil {
			t.Log("openssl is not here, so Go alone was asked")
			continue
		}
		out, err := exec.Command("openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", filepath.Join(dir, "ca.pem"), "-verify_hostname", c.name, filepath.Join(dir, "leaf.pem")).CombinedOutput()
		if (err == nil) != c.ok || !c.ok && !strings.Contains(string(out), "permitted subtree violation") {
			t.Errorf("OpenSSL on %s: %v\n%s", c.name, err, out)
		}
	}
}
