package reach

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Where Debian keeps the authorities that it ships, and those of the administrator.
const (
	shipped = "/usr/share/ca-certificates"
	added   = "/usr/local/share/ca-certificates"
)

// authorities are those that this machine trusts beyond the distribution's.
func authorities() (string, error) {
	known, err := certificates(files(shipped))
	if err != nil {
		return "", err
	}
	from := files(added)
	if len(known) > 0 { // of a whole bundle what is new cannot be told otherwise
		from = append(from, npmConfig("cafile", false), os.Getenv("NODE_EXTRA_CA_CERTS"), os.Getenv("SSL_CERT_FILE"))
	}
	found, err := certificates(from)
	return without(found, known), err
}

// files are those below a directory, sorted.
func files(dir string) (all []string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".crt" {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// certificates reads files of certificates in PEM; one that is not there has none.
func certificates(from []string) (all [][]byte, err error) {
	for _, file := range from {
		text, err := os.ReadFile(file)
		if file == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the authorities that this machine trusts: %w", err)
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if _, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
				all = append(all, block.Bytes)
			}
		}
	}
	return all, nil
}

// without are those that are not known, each once, in PEM.
func without(found, known [][]byte) string {
	var b bytes.Buffer
	for _, c := range found {
		if !slices.ContainsFunc(known, func(k []byte) bool { return bytes.Equal(k, c) }) {
			pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c})
			known = append(known, c)
		}
	}
	return b.String()
}
