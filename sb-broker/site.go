package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sb/lib/binding"
	"sb/lib/reason"
	"sb/lib/rule"
	"sb/sb-broker/graphql"
)

// methods are those that a request to a bound name may have.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// site is a name and the credentials that are bound to it.
type site struct {
	name     string
	bindings []*bound
	byPath   bool // one of them is for some paths alone
}

// bound is a credential as it is bound to names.
type bound struct {
	binding.Binding
	header  string         // as folded by fold
	queries *graphql.Judge // nil: bodies are not looked at
}

// forbiddenHeaders say where a request goes or ends, and are nobody's credential.
var forbiddenHeaders = []string{"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "accept-encoding", "keep-alive", "proxy-connection"}

// newSites checks the bindings and sorts them by name.
func newSites(all []binding.Binding) (map[string]*site, error) {
	sites := map[string]*site{}
	for i, c := range all {
		b, err := newBound(c)
		if err != nil {
			return nil, fmt.Errorf("credential %d (%s): %w", i+1, c.Secret, err)
		}
		for _, h := range c.Hosts {
			name, err := rule.ParseName(h)
			if err != nil {
				return nil, fmt.Errorf("credential %d (%s): hosts: %w", i+1, c.Secret, err)
			}
			s := sites[name.String()]
			if s == nil {
				s = &site{name: name.String()}
				sites[s.name] = s
			}
			s.bindings = append(s.bindings, b)
			s.byPath = s.byPath || len(c.Paths) > 0 || len(c.DeniedPaths) > 0
		}
	}
	return sites, nil
}

func newBound(c binding.Binding) (b *bound, err error) {
	b = &bound{Binding: c, header: fold(c.Header)}
	_, basic := strings.CutPrefix(c.Format, "Basic ")
	switch {
	case c.Secret == "" || strings.ContainsFunc(c.Secret, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, fmt.Errorf("secret: %q is no name", c.Secret)
	case !isToken(c.Header) || slices.Contains(forbiddenHeaders, b.header):
		return nil, fmt.Errorf("header: %q cannot carry a credential", c.Header)
	case strings.Count(c.Format, "{}") != 1 && !basic:
		return nil, fmt.Errorf("format: %q has no {} where the value stands", c.Format)
	case c.Inject != "" && c.Inject != "always":
		return nil, fmt.Errorf("inject: %q is neither empty nor always", c.Inject)
	case len(c.Placeholder) < 8:
		return nil, fmt.Errorf("placeholder: %q is too short to be told from other text", c.Placeholder)
	case len(c.Hosts) == 0:
		return nil, fmt.Errorf("hosts: there is none")
	}
	if len(b.Methods) == 0 {
		b.Methods = methods
	}
	for _, m := range b.Methods {
		if !slices.Contains(methods, m) {
			return nil, fmt.Errorf("methods: %q is none of %s", m, strings.Join(methods, " "))
		}
	}
	for _, p := range slices.Concat(b.Paths, b.DeniedPaths) {
		if !strings.HasPrefix(p, "/") {
			return nil, fmt.Errorf("paths: %q does not begin with /", p)
		}
	}
	if c.GraphQL != "" {
		if b.queries, err = graphql.New(c.GraphQL); err != nil {
			return nil, fmt.Errorf("graphql: %w", err)
		}
	}
	return b, nil
}

// fold is a header's name as servers that hand fields over in variables take it: some
// have an underscore there for whatever is no letter and no digit.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// refused is why a request is not passed on.
type refused struct {
	why  reason.Code // "" if it is
	what string      // a credential's name, or a word about the request
}

// plan is the credentials that a request gets.
type plan []*bound

// judge decides what becomes of a request: where it goes is right, what it asks for
// is plain, and which credentials it presents placeholders of.
func (s *site) judge(r *http.Request, port uint16) (plan, refused) {
	switch {
	case !s.isFor(r, port):
		return nil, refused{why: reason.HostMisdirected, what: r.Host}
	case !slices.Contains(methods, r.Method):
		return nil, refused{why: reason.HTTPMethod, what: r.Method}
	case countFields(r.Header) > maxFields:
		return nil, refused{why: reason.HTTPTooLong}
	case s.byPath && !isPlain(r):
		return nil, refused{why: reason.HTTPPath}
	case s.hasLookalike(r):
		return nil, refused{why: reason.HeaderTwice}
	}
	return s.choose(r)
}

// isFor says whether a request is for the name whose certificate was verified.
func (s *site) isFor(r *http.Request, port uint16) bool {
	if r.URL.IsAbs() || r.URL.User != nil || r.URL.Host != "" && r.URL.Host != r.Host {
		return false
	}
	for _, h := range r.Header["Host"] { // HTTP/2 has both
		if h != r.Host {
			return false
		}
	}
	host := strings.ToLower(r.Host)
	return host == s.name || host == fmt.Sprintf("%s:%d", s.name, port)
}

func countFields(h http.Header) (n int) {
	for _, v := range h {
		n += len(v)
	}
	return n
}

// hasLookalike says whether a header that a credential is for is there twice, or in
// a spelling that some servers take for it, or comes behind the body.
func (s *site) hasLookalike(r *http.Request) bool {
	for _, b := range s.bindings {
		n := 0
		for name, values := range r.Header {
			if fold(name) != b.header {
				continue
			}
			if n += len(values); http.CanonicalHeaderKey(b.Header) != name {
				return true
			}
		}
		if n > 1 {
			return true
		}
		for name := range r.Trailer {
			if fold(name) == b.header {
				return true
			}
		}
	}
	return false
}

// choose finds the credentials that a request gets: those whose placeholder it
// presents, and those that are put in always where no other is in that header.
func (s *site) choose(r *http.Request) (plan, refused) {
	var p plan
	var outside *bound
	for _, b := range s.bindings {
		switch {
		case !b.presented(r.Header):
		case b.covers(r):
			p = p.with(b)
		case outside == nil || b.denies(r):
			outside = b
		}
	}
	for _, b := range s.bindings {
		if b.Inject == "always" && b.covers(r) {
			p = p.with(b)
		}
	}
	if outside != nil && !p.has(outside.header) {
		return nil, refused{why: outside.whyNot(r), what: outside.Secret}
	}
	return p, refused{}
}

func (p plan) has(header string) bool {
	return slices.ContainsFunc(p, func(b *bound) bool { return b.header == header })
}

// puts says whether a placeholder is replaced in that header.
func (p plan) puts(header, placeholder string) bool {
	return slices.ContainsFunc(p, func(b *bound) bool { return b.header == header && b.Placeholder == placeholder })
}

func (p plan) with(b *bound) plan {
	if p.has(b.header) {
		return p
	}
	return append(p, b)
}

// presented says whether a request shows the placeholder where the credential goes:
// as a word of the header's value, or as the password within it.
func (b *bound) presented(h http.Header) bool {
	for _, v := range h.Values(b.Header) {
		if slices.Contains(strings.Fields(v), b.Placeholder) || v == strings.Replace(b.Format, "{}", b.Placeholder, 1) {
			return true
		}
		kind, text, _ := strings.Cut(v, " ")
		if !strings.EqualFold(kind, "basic") {
			continue
		}
		pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		user, password, _ := strings.Cut(string(pair), ":")
		if err == nil && (password == b.Placeholder || user == b.Placeholder) {
			return true
		}
	}
	return false
}

// covers says whether the credential is for such a request.
func (b *bound) covers(r *http.Request) bool {
	if !slices.Contains(b.Methods, r.Method) || b.denies(r) {
		return false
	}
	return len(b.Paths) == 0 || slices.ContainsFunc(b.Paths, func(p string) bool { return isBelow(r.RequestURI, p) })
}

// whyNot is why the credential is not for a request.
func (b *bound) whyNot(r *http.Request) reason.Code {
	if b.denies(r) {
		return reason.CredentialMint
	}
	return reason.CredentialScope
}

// denies says whether a request is for a path that the binding leaves out.
func (b *bound) denies(r *http.Request) bool {
	return slices.ContainsFunc(b.DeniedPaths, func(p string) bool { return isWithin(r.RequestURI, p) })
}

// value is what the header says with the credential in it.
func (b *bound) value(secret []byte) string {
	if user, ok := strings.CutPrefix(b.Format, "Basic "); ok {
		return "Basic " + base64.StdEncoding.EncodeToString(append([]byte(user+":"), secret...))
	}
	return strings.Replace(b.Format, "{}", string(secret), 1)
}
