package main

import (
	"net/http"
	"net/url"
	"strings"
)

// pathOf is the path of a request as it was sent.
func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

// isBelow says whether a request's target is prefix or lies beneath it, as it is
// spelt. What is behind the prefix holds no slash in disguise.
func isBelow(target, prefix string) bool {
	rest, ok := strings.CutPrefix(pathOf(target), prefix)
	if !ok || rest != "" && rest[0] != '/' && !strings.HasSuffix(prefix, "/") {
		return false
	}
	return !strings.Contains(strings.ToLower(rest), "%2f")
}

// isWithin says whether a request's target is pattern or lies beneath it, in any way
// in which a server may read it: whatever the case, with a slash in disguise as one
// or not, with the name of a format behind a dot. A segment * is any.
func isWithin(target, pattern string) bool {
	path := strings.ToLower(pathOf(target))
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return true
	}
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i], _ = url.PathUnescape(p)
	}
	want := strings.Split(strings.ToLower(pattern), "/")
	return begins(parts, want) || begins(strings.Split(decoded, "/"), want)
}

func begins(parts, want []string) bool {
	if len(parts) < len(want) {
		return false
	}
	for i, w := range want {
		if p := parts[i]; w != "*" && p != w && !strings.HasPrefix(p, w+".") {
			return false
		}
	}
	return true
}

// isPlain says whether every server reads the path of a request in the same way: no
// empty segment but the last, no "." and "..", no backslash, no parameters, and
// escapes only of what must be escaped. It must also be what is sent on.
func isPlain(r *http.Request) bool {
	path := pathOf(r.RequestURI)
	if !strings.HasPrefix(path, "/") || r.URL.EscapedPath() != path {
		return false
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		if s == "" && i < len(segments)-1 || s == "." || s == ".." || strings.ContainsAny(s, `;\`) || !escapesPlainly(s) {
			return false
		}
	}
	return true
}

// escapesPlainly says whether the escapes of a segment are of bytes that cannot
// stand there themselves, a slash among them: not of letters, digits and -._~,
// which would be a second spelling, nor of control bytes, "%" and "\".
func escapesPlainly(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		if i+2 >= len(s) {
			return false
		}
		c := unhex(s[i+1])<<4 | unhex(s[i+2])
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0, c < ' ', c == 0x7f, c == '%', c == '\\', c == ';':
			return false
		}
		i += 2
	}
	return true
}

// unhex is a digit of an escape, which net/url has found to be one.
func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}
