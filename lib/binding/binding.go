// Package binding says where a credential goes: which requests to which names
// get it, and how.
//
// A guest holds a placeholder, and no more; the binding is what turns it into the
// secret, outside, in one field of requests to its hosts. Those of well-known
// services are built in (services.toml); a user writes others as [[binding]]
// tables of config.toml.
package binding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sb/lib/rule"
)

// Binding is one way in which one secret is used.
type Binding struct {
	Secret      string   `toml:"secret"`       // its name in the keeper's store
	Variable    string   `toml:"variable"`     // of the guest's environment, holds the placeholder
	Hosts       []string `toml:"hosts"`        // exact names (rule.Name grammar), no wildcards
	Header      string   `toml:"header"`       // e.g. authorization, x-api-key
	Format      string   `toml:"format"`       // "{}", "Bearer {}", "Basic USER" (base64 of USER:value)
	Methods     []string `toml:"methods"`      // none: GET HEAD POST PUT PATCH DELETE OPTIONS
	Paths       []string `toml:"paths"`        // prefixes; none: every path
	DeniedPaths []string `toml:"denied_paths"` // prefixes, whatever paths says; * is one segment
	GraphQL     string   `toml:"graphql"`      // OWNER/REPO: queries about that repository of GitHub's alone
	Websocket   bool     `toml:"websocket"`
	Inject      string   `toml:"inject"`      // "" (the placeholder must be presented) or "always"
	Placeholder string   `toml:"placeholder"` // random for each run; made by sb-run; never in a user's file
}

// What a secret and a binding may have at most.
const (
	MinSecret = 8        // bytes of a value: a shorter one is found by chance in what servers send
	MaxSecret = 16 << 10 // and at most
	MaxName   = 64       // bytes of a secret's name
	maxList   = 64       // hosts, methods or paths
	maxPath   = 1024     // bytes of a prefix
	maxFormat = 256
)

// ValidSecret reports whether s can name a secret: lower-case letters, digits,
// "-", "_" and ".", at most 64, a letter or digit first. It is a file name too.
func ValidSecret(s string) bool {
	for i, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || i > 0 && strings.IndexByte("-_.", c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= MaxName
}

// Check brings b to its canonical form (names, header and methods in one case)
// and says what is wrong with it, with the key that is.
func (b *Binding) Check() error {
	if !ValidSecret(b.Secret) {
		return fmt.Errorf("secret: %q is no name of a secret: lower-case letters, digits, -, _ and ., at most %d", b.Secret, MaxName)
	}
	for _, c := range []struct {
		key   string
		check func() error
	}{
		{"variable", b.checkVariable}, {"hosts", b.checkHosts}, {"header", b.checkHeader}, {"format", b.checkFormat},
		{"methods", b.checkMethods}, {"paths", b.checkPaths}, {"denied_paths", b.checkDenied}, {"graphql", b.checkGraphQL}, {"inject", b.checkInject}, {"placeholder", b.checkPlaceholder},
	} {
		if err := c.check(); err != nil {
			return fmt.Errorf("binding of %s: %s: %w", b.Secret, c.key, err)
		}
	}
	return nil
}

// Shown is the binding in words, for a question or a list: its secret and hosts.
func (b *Binding) Shown() string { return b.Secret + " at " + strings.Join(b.Hosts, ", ") }

func (b *Binding) checkVariable() error {
	if b.Variable != "" && !IsVariable(b.Variable) {
		return fmt.Errorf("%q is no name of a variable: letters, digits and _, no digit first", b.Variable)
	}
	return nil
}

// IsVariable reports whether s can name a variable of an environment.
func IsVariable(s string) bool {
	for i, c := range []byte(s) {
		if !(c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func (b *Binding) checkHosts() error {
	if len(b.Hosts) == 0 || len(b.Hosts) > maxList {
		return fmt.Errorf("%d hosts: between 1 and %d are to be named", len(b.Hosts), maxList)
	}
	hosts := make([]string, 0, len(b.Hosts))
	for _, h := range b.Hosts {
		if strings.Contains(h, "*") {
			return fmt.Errorf("%q: a credential goes to exact names, not to a wildcard", h)
		}
		n, err := rule.ParseName(h)
		if err != nil {
			return err
		}
		if slices.Contains(hosts, n.String()) {
			return fmt.Errorf("%q is named twice", n)
		}
		hosts = append(hosts, n.String())
	}
	b.Hosts = hosts
	return nil
}

// fixed are the fields that say how a request is read or where it goes: no
// credential is put in one (RFC 9110, sections 7 and 10; RFC 9112; RFC 6455).
var fixed = map[string]bool{
	"host": true, "content-length": true, "content-type": true, "content-encoding": true, "transfer-encoding": true,
	"connection": true, "proxy-connection": true, "keep-alive": true, "upgrade": true, "te": true, "trailer": true,
	"expect": true, "date": true, "via": true, "forwarded": true, "set-cookie": true, "accept-encoding": true,
	"range": true, "max-forwards": true, "location": true, "origin": true, "referer": true,
}

func (b *Binding) checkHeader() error {
	h := strings.ToLower(b.Header)
	switch {
	case h == "":
		return errors.New("it is not set: authorization, x-api-key and the like")
	case len(h) > MaxName || strings.Trim(h, "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~") != "":
		return fmt.Errorf("%q is no name of a header field", b.Header)
	case fixed[h] || strings.HasPrefix(h, "sec-websocket-") || strings.HasPrefix(h, "proxy-"):
		return fmt.Errorf("%s says how a request is read, and holds no credential", h)
	}
	b.Header = h
	return nil
}

func (b *Binding) checkFormat() error {
	user, basic := strings.CutPrefix(b.Format, "Basic ")
	switch n := strings.Count(b.Format, "{}"); {
	case len(b.Format) > maxFormat || !visible(b.Format):
		return fmt.Errorf("%q is not text of at most %d visible ASCII characters", b.Format, maxFormat)
	case basic && n == 0:
		if user == "" || strings.ContainsAny(user, ": ") {
			return fmt.Errorf("%q: a user name without a colon or a blank follows Basic", b.Format)
		}
	case n != 1:
		return fmt.Errorf("%q: {} stands for the value, once; or Basic USER", b.Format)
	case strings.TrimSpace(b.Format) != b.Format:
		return fmt.Errorf("%q: blanks at an end are no part of a field", b.Format)
	}
	return nil
}

// visible reports whether s is printable ASCII.
func visible(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

func (b *Binding) checkMethods() error {
	if len(b.Methods) > maxList {
		return fmt.Errorf("%d methods, at most %d", len(b.Methods), maxList)
	}
	for i, m := range b.Methods {
		m = strings.ToUpper(m)
		if m == "" || len(m) > MaxName || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
			return fmt.Errorf("%q is no method", b.Methods[i])
		}
		if m == "CONNECT" || m == "TRACE" {
			return fmt.Errorf("%s never gets a credential: it makes a proxy or an echo of the server", m)
		}
		b.Methods[i] = m
	}
	return nil
}

func (b *Binding) checkPaths() error {
	if len(b.Paths) > 4*maxList {
		return fmt.Errorf("%d paths, at most %d", len(b.Paths), 4*maxList)
	}
	for _, p := range b.Paths {
		if strings.Contains(p, "*") {
			return fmt.Errorf("%q: a * has no meaning here", p)
		}
		if err := checkPath(p); err != nil {
			return err
		}
	}
	return nil
}

func (b *Binding) checkDenied() error {
	if len(b.DeniedPaths) > 4*maxList {
		return fmt.Errorf("%d paths, at most %d", len(b.DeniedPaths), 4*maxList)
	}
	for _, p := range b.DeniedPaths {
		for s := range strings.SplitSeq(p, "/") {
			if strings.Contains(s, "*") && s != "*" {
				return fmt.Errorf("%q: a * stands for a whole segment", p)
			}
		}
		if err := checkPath(p); err != nil {
			return err
		}
		if strings.Contains(p, "%") || strings.HasSuffix(p, "/") {
			return fmt.Errorf("%q: it is written without escapes and without a / at its end", p)
		}
	}
	return nil
}

func checkPath(p string) error {
	switch low := strings.ToLower(p); {
	case !strings.HasPrefix(p, "/") || len(p) > maxPath || !visible(p) || strings.ContainsAny(p, "?#\\ "):
		return fmt.Errorf("%q is no path: it begins with /, and has no ?, #, \\ or blank", p)
	case strings.Contains(p, "//") || strings.Contains(low, "%2f") || strings.Contains(low, "%2e") || strings.Contains(low, "%5c"):
		return fmt.Errorf("%q: servers read // and %%2f in different ways; write it as it is sent", p)
	case slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool { return s == "." || s == ".." }):
		return fmt.Errorf("%q has a . or .. in it", p)
	}
	return nil
}

func (b *Binding) checkGraphQL() error {
	switch {
	case b.GraphQL == "":
	case !isRepository(b.GraphQL):
		return fmt.Errorf("%q is no repository: write it as OWNER/REPO, without .git", b.GraphQL)
	case !slices.Equal(b.Methods, []string{"POST"}):
		return errors.New("methods must be POST alone: a request of another kind has no body to judge")
	}
	return nil
}

func (b *Binding) checkInject() error {
	if b.Inject != "" && b.Inject != "always" {
		return fmt.Errorf("%q is neither always nor left out", b.Inject)
	}
	return nil
}

func (b *Binding) checkPlaceholder() error {
	if len(b.Placeholder) > 4096 || !visible(b.Placeholder) || strings.Contains(b.Placeholder, " ") {
		return errors.New("it is not text of visible ASCII characters without a blank")
	}
	return nil
}
