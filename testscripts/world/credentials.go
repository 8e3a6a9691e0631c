package world

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
)

// credentials answers requests about what they carry: /seen says by which digests
// the server knows the credentials that it got, /echo sends them back.
func credentials(w http.ResponseWriter, r *http.Request) bool {
	show := Digest
	switch {
	case strings.HasPrefix(r.URL.Path, "/seen"):
	case r.URL.Path == "/echo":
		show = func(s string) string { return s }
	default:
		return false
	}
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		fmt.Fprintf(w, "%s %s\n", strings.ToLower(name), show(r.Header.Get(name)))
	}
	return true
}

// Digest is how /seen shows a value, "-" where there is none.
func Digest(s string) string {
	if s == "" {
		return "-"
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))
}
