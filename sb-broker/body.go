package main

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sb/lib/reason"
	"sb/sb-broker/graphql"
)

// maxForm is how much of a form is looked through for another method, in bytes.
const maxForm = 64 << 10

// judgeBody judges what the body of a request says about what it asks for, where a
// credential is put in that is not for everything. A body that was read is put back
// as it was judged.
func judgeBody(r *http.Request, p plan) refused {
	limited := false
	for _, b := range p {
		if b.queries != nil {
			return judgeQuery(r, b)
		}
		limited = limited || slices.ContainsFunc(methods, func(m string) bool { return !slices.Contains(b.Methods, m) })
	}
	if !limited {
		return refused{}
	}
	if overridesMethod(r.URL.RawQuery) {
		return refused{why: reason.MethodOverride, what: "query"}
	}
	return judgeForm(r)
}

// judgeQuery lets a query of GraphQL through that is about the credential's
// repository alone.
func judgeQuery(r *http.Request, b *bound) refused {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || len(r.Header["Content-Encoding"]) > 0 || r.URL.RawQuery != "" {
		return refused{reason.GraphQLScope, "no JSON in a body alone"}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, graphql.MaxBody+1))
	if err == nil {
		text, err = b.queries.Body(text)
	}
	if err != nil {
		return refused{reason.GraphQLScope, err.Error()}
	}
	putBack(r, text)
	return refused{}
}

// judgeForm refuses a form in which a field names another method, and has JSON refused
// when it comes to a member that does: some servers take a request for that.
func judgeForm(r *http.Request) refused {
	types := r.Header["Content-Type"]
	if saysJSON(types) {
		if no := judgeJSON(r); no.why != "" {
			return no
		}
	}
	if r.Body == http.NoBody || !mayBeForm(types) {
		return refused{}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxForm+1))
	if err != nil || len(text) > maxForm || overridesMethod(string(text)) || len(r.Header["Content-Encoding"]) > 0 {
		return refused{reason.MethodOverride, "form"}
	}
	putBack(r, text)
	return refused{}
}

// mayBeForm says whether a server may read a body of that type as a form: one that says
// so, one of parts, and one that says nothing (Rack takes that for a form), nothing that
// can be read, or more than one thing.
func mayBeForm(types []string) bool {
	if len(types) != 1 {
		return true
	}
	kind, _, err := mime.ParseMediaType(types[0])
	return err != nil || !strings.Contains(kind, "/") || kind == "application/x-www-form-urlencoded" || strings.HasPrefix(kind, "multipart/")
}

// overridesMethod says whether a query or a form has the name of a field in it by
// which servers let a method be overridden, however it is escaped.
func overridesMethod(text string) bool {
	for range 3 { // some servers decode twice
		low := strings.ReplaceAll(strings.ToLower(text), `\`, "") // which escapes in the names of parts
		if dottedMethod.MatchString(low) {
			return true
		}
		for _, name := range []string{"_method", "http-method", "http_method", "httpmethod", "method-override", "method_override"} {
			if strings.Contains(low, name) {
				return true
			}
		}
		text = unescaped(text)
	}
	return false
}

// dottedMethod finds what PHP takes for "_method", where a name may begin.
var dottedMethod = regexp.MustCompile(`(?:^|[&;"=\s])[+\s]*\.method`)

// unescaped is text with its percent escapes decoded, as far as they are any.
func unescaped(text string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "%")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		if c, err := url.PathUnescape("%" + rest[:min(2, len(rest))]); err == nil {
			out.WriteString(c)
			rest = rest[2:]
		}
		text = rest
	}
}

func putBack(r *http.Request, text []byte) {
	r.Body, r.ContentLength, r.Trailer = io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
	r.TransferEncoding = nil
}
