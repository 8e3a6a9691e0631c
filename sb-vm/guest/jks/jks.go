// Package jks writes Java's own file of trusted certificates, so that a guest needs
// no Java to add one.
//
// The form is that of sun.security.provider.JavaKeyStore: a magic number, a version,
// a count and the entries, all big endian, and a digest under a password that is
// known to everybody ("changeit"). Java reads it whatever its own default is.
package jks

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"unicode/utf16"
)

const (
	magic    = 0xfeedfeed
	version  = 2
	trusted  = 2 // the tag of an entry that is a certificate
	head     = 12
	maxStore = 64 << 20
	password = "changeit"
	whitener = "Mighty Aphrodite"
)

// ErrForm says that a store has another form, such as PKCS #12.
var ErrForm = errors.New("it is no store of the JKS form")

// Add returns the store with one more certificate (DER), under a name. A store that
// has it is returned as it is; what else has that name stays too.
func Add(store []byte, alias string, certificate []byte) ([]byte, error) {
	if len(store) < head+sha1.Size || len(store) > maxStore || binary.BigEndian.Uint32(store) != magic || binary.BigEndian.Uint32(store[4:]) != version {
		return nil, ErrForm
	}
	if bytes.Contains(store, certificate) {
		return store, nil
	}
	body := append([]byte(nil), store[:len(store)-sha1.Size]...)
	n := binary.BigEndian.Uint32(body[8:])
	binary.BigEndian.PutUint32(body[8:], n+1)
	return seal(entry(body, fmt.Sprintf("%s-%d", alias, n), certificate)), nil
}

// New returns a store with the certificates of a text in PEM.
func New(text []byte) ([]byte, error) {
	body := binary.BigEndian.AppendUint32(nil, magic)
	body = binary.BigEndian.AppendUint32(body, version)
	body = binary.BigEndian.AppendUint32(body, 0)
	n := uint32(0)
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			body = entry(body, fmt.Sprintf("system-%d", n), block.Bytes)
			n++
		}
	}
	if n == 0 {
		return nil, errors.New("there is no certificate to make it of")
	}
	binary.BigEndian.PutUint32(body[8:], n)
	return seal(body), nil
}

func entry(body []byte, alias string, certificate []byte) []byte {
	body = binary.BigEndian.AppendUint32(body, trusted)
	body = utf(body, alias)
	body = binary.BigEndian.AppendUint64(body, 0) // when it was made: 1970, milliseconds
	body = utf(body, "X.509")
	body = binary.BigEndian.AppendUint32(body, uint32(len(certificate)))
	return append(body, certificate...)
}

func utf(body []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(body, uint16(len(s))), s...)
}

func seal(body []byte) []byte {
	h := sha1.New()
	for _, c := range utf16.Encode([]rune(password)) {
		h.Write([]byte{byte(c >> 8), byte(c)})
	}
	h.Write([]byte(whitener))
	h.Write(body)
	return h.Sum(body)
}
