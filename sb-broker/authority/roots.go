package authority

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Roots reads the authorities that servers are verified by: the system's, and those
// of files in PEM.
func Roots(files []string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificate authorities: %w", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities (broker.roots or --roots): %w", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read certificate authorities (broker.roots or --roots): %s holds no certificate in PEM", f)
		}
	}
	return pool, nil
}
