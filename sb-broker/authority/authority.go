// Package authority is the certificate authority of one sandbox. Its key is in
// memory alone and ends with the process; what it signs is valid for the names
// that it was made for and for no others, whoever has the key.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// How long certificates are valid. A guest's clock may be wrong by a day at least, and
// the host's may be set right meanwhile.
const (
	leafTime   = 24 * time.Hour
	renewTime  = leafTime / 2
	behindTime = 48 * time.Hour
	aheadTime  = 48 * time.Hour
	ownTime    = 10 * 365 * 24 * time.Hour // the key ends with the process, whatever this says
)

// Authority signs the certificates that the guest sees.
type Authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	names map[string]bool
	now   func() time.Time

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // at most one for each name
}

// New makes an authority for names and for none besides them.
func New(names []string) (*Authority, error) {
	a := &Authority{names: map[string]bool{}, now: time.Now, leaves: map[string]*tls.Certificate{}}
	for _, n := range names {
		a.names[n] = true
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make the key of the certificate authority: %w", err)
	}
	nobody := []string{"sb.invalid"} // a kind of name without a constraint could be any
	tmpl := &x509.Certificate{
		SerialNumber:                serial(),
		Subject:                     pkix.Name{CommonName: "sb sandbox " + serial().Text(36)[:8]},
		NotBefore:                   a.now().Add(-behindTime),
		NotAfter:                    a.now().Add(ownTime),
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         names,
		PermittedEmailAddresses:     nobody,
		PermittedURIDomains:         nobody,
		ExcludedIPRanges:            []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority: %w", err)
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// serial is a random number of 127 bits: at most 20 bytes (RFC 5280, section 4.1.2.2).
func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return n.Add(n, big.NewInt(1)).SetBit(n, 126, 1)
}

// PEM is the authority's certificate, without its key.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Leaf is a certificate for one of the authority's names.
func (a *Authority) Leaf(name string) (*tls.Certificate, error) {
	if !a.names[name] {
		return nil, fmt.Errorf("make a certificate for %s: the authority is not for that name", name)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil && c.Leaf.NotAfter.Sub(a.now()) > aheadTime+renewTime && c.Leaf.NotBefore.Before(a.now().Add(-renewTime)) {
		return c, nil
	}
	c, err := a.sign(name)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", name, err)
	}
	a.leaves[name] = c
	return c, nil
}

func (a *Authority) sign(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(),
		DNSNames:     []string{name},
		NotBefore:    a.now().Add(-behindTime),
		NotAfter:     a.now().Add(leafTime + aheadTime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}
