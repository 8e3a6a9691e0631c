package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"sb/lib/reason"
)

// saysJSON says whether a server may read a body of that type as JSON.
func saysJSON(types []string) bool {
	return slices.ContainsFunc(types, func(t string) bool { return strings.Contains(strings.ToLower(t), "json") })
}

// membersOfMethod are the members of an object by which servers let a method be
// overridden; Laravel takes the first as if it were of a form.
var membersOfMethod = []string{"_method", "method_override", "method-override", "_method_override", "http_method_override", "http-method-override", "x-http-method-override"}

// maxMember is more than any of them has, however it is escaped, in bytes.
const maxMember = 256

// judgeJSON refuses a body in JSON that names another method. One that is long, or
// whose length is not known, passes as it comes and is cut off there: what a server has
// of it by then is no whole value.
func judgeJSON(r *http.Request) refused {
	if r.Body == http.NoBody {
		return refused{}
	}
	no := refused{reason.MethodOverride, "JSON"}
	if len(r.Header["Content-Encoding"]) > 0 {
		return no
	}
	watched := &watchedJSON{ReadCloser: r.Body, no: refusal{no}}
	if r.ContentLength < 0 || r.ContentLength > maxForm {
		r.Body = watched
		return refused{}
	}
	text, err := io.ReadAll(watched)
	if err != nil {
		return no
	}
	putBack(r, text)
	return refused{}
}

// watchedJSON is a body of which the strings at the top are looked at.
type watchedJSON struct {
	io.ReadCloser
	depth   int
	object  bool // the value that is being read is one
	quoted  bool // in a string
	escaped bool // behind a backslash in it
	text    []byte
	tooLong bool
	no      refusal
	cut     bool
}

// Read implements io.Reader. Nothing of a piece in which there is a reason to refuse is
// handed out.
func (j *watchedJSON) Read(p []byte) (int, error) {
	if j.cut {
		return 0, j.no
	}
	n, err := j.ReadCloser.Read(p)
	for _, c := range p[:n] {
		if !j.passes(c) {
			j.cut = true
			return 0, j.no
		}
	}
	return n, err
}

// passes takes the next byte. False: there is a name of a method's member, or what is
// no JSON, in which a lax server may find one elsewhere.
func (j *watchedJSON) passes(c byte) bool {
	switch {
	case j.quoted && j.escaped:
		j.escaped = false
	case j.quoted && c == '"':
		j.quoted = false
		return j.depth != 1 || !j.object || !j.overrides()
	case j.quoted:
		j.escaped = c == '\\'
	case c == '"':
		j.quoted, j.text, j.tooLong = true, j.text[:0], false
		return true
	case c == '{' || c == '[':
		if j.depth++; j.depth == 1 {
			j.object = c == '{'
		}
	case c == '}' || c == ']':
		j.depth--
		return j.depth >= 0
	default:
		return strings.IndexByte(" \t\r\n,:+-.", c) >= 0 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
	}
	if j.tooLong = j.tooLong || len(j.text) == maxMember; j.quoted && !j.tooLong {
		j.text = append(j.text, c)
	}
	return true
}

// overrides says whether the string that has ended is such a name.
func (j *watchedJSON) overrides() bool {
	if j.tooLong {
		return false
	}
	var name string
	if json.Unmarshal([]byte(`"`+string(j.text)+`"`), &name) != nil {
		return strings.Contains(string(j.text), `\`) // an escape that some servers may know
	}
	return slices.Contains(membersOfMethod, strings.ToLower(strings.TrimSpace(name)))
}
