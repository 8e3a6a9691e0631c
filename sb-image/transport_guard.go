package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/net/publicsuffix"
)

// guard is between the registry client and the network: whatever a registry
// answers, nothing goes out in the clear, and a password only to the registry
// or to a host of the same owner.
type guard struct {
	next     http.RoundTripper
	registry string // host, or host:port
	insecure bool
}

func newGuard(registry string, insecure bool) *guard {
	next := remote.DefaultTransport
	if t, ok := next.(*http.Transport); ok && insecure {
		t = t.Clone()
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // asked for with --insecure
		next = t
	}
	return &guard{next, registry, insecure}
}

var errPlain = errors.New("the registry is asked over HTTPS only")

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Hostname()
	if req.URL.Scheme != "https" && !g.insecure && !isLoopback(host) {
		return nil, fmt.Errorf("%w, not as %s://%s", errPlain, req.URL.Scheme, req.URL.Host)
	}
	// A password is sent as it is, or a sign-in as a form; a token for the
	// registry alone the client keeps to the registry itself.
	secret := strings.HasPrefix(req.Header.Get("Authorization"), "Basic ") || req.Method == http.MethodPost
	if secret && !sameSite(hostOf(g.registry), host) {
		return nil, fmt.Errorf("the registry %s wants its password sent to %s, which is another's", g.registry, host)
	}
	return g.next.RoundTrip(req)
}

func hostOf(registry string) string {
	if host, _, err := net.SplitHostPort(registry); err == nil {
		return host
	}
	return registry
}

func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// sameSite reports whether two hosts have one owner, as browsers see it: the
// same name one label above a public suffix.
func sameSite(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	if net.ParseIP(a) != nil || net.ParseIP(b) != nil {
		return false
	}
	x, err := publicsuffix.EffectiveTLDPlusOne(strings.ToLower(a))
	if err != nil {
		return false
	}
	y, err := publicsuffix.EffectiveTLDPlusOne(strings.ToLower(b))
	return err == nil && x == y
}
