// Package http1 reads HTTP/1 requests from a client's stream, to learn for which
// host each of them is and where it ends. It is stricter than any server: what
// two readers might understand differently is refused, so that no request can
// hide in another.
package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"sb/lib/reason"
)

// The bounds of a request's head.
const (
	MaxHead   = 64 << 10 // bytes
	MaxFields = 200
	maxMethod = 20
)

// Refused is a request that is not let through.
type Refused struct{ Code reason.Code }

func (r Refused) Error() string { return string(r.Code) }

func refuse(code reason.Code) error { return Refused{code} }

// Request is one request's head and the framing of its body.
type Request struct {
	Head    []byte // as it came, to be passed on as it is
	Method  string
	Host    string // host[:port] of the Host field; an absolute target agrees with it
	Upgrade string // the protocol asked for, in lower case; "" if none

	length  int64 // of the body, in bytes
	chunked bool
}

// Looks reports whether a stream that begins with b may be HTTP/1: true as long
// as nothing speaks against it. Every method is an upper-case word.
func Looks(b []byte) bool {
	for i, c := range b {
		switch {
		case c == ' ' && i > 0:
			return true
		case i == maxMethod || c != '-' && (c < 'A' || c > 'Z'):
			return false
		}
	}
	return true
}

// Read reads one request's head. io.EOF means that the client ended between two
// requests; Refused, that the request is not let through.
func Read(r *bufio.Reader) (*Request, error) {
	line, err := readLine(r, MaxHead)
	if err == io.ErrUnexpectedEOF && len(line) == 0 {
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	req := &Request{Head: bytes.Clone(line)}
	target, minor, err := requestLine(req, strings.TrimSuffix(string(line), "\r\n"))
	if err != nil {
		return nil, err
	}
	f, err := req.readFields(r)
	if err != nil {
		return nil, err
	}
	return req, req.settle(target, minor, f)
}

// fields are those of a head that matter here.
type fields struct {
	hosts, lengths, encodings, upgrades, expects []string

	drops     bool // Connection names one that must not be lost on the way
	lookalike bool // one is spelt with a "_" that some servers take for a "-"
}

func (req *Request) readFields(r *bufio.Reader) (*fields, error) {
	f := &fields{}
	for n := 0; ; n++ {
		line, err := readLine(r, MaxHead-len(req.Head))
		if err != nil {
			return nil, err
		}
		req.Head = append(req.Head, line...)
		if len(line) == 2 {
			return f, nil
		}
		if n == MaxFields {
			return nil, refuse(reason.HTTPTooLong)
		}
		name, value, ok := bytes.Cut(line[:len(line)-2], []byte(":"))
		if !ok || !isToken(name) {
			return nil, refuse(reason.HTTPMalformed) // also a space before the colon, and a folded line
		}
		if !f.add(lower(string(name)), strings.Trim(string(value), " \t")) {
			return nil, refuse(reason.HTTPMalformed)
		}
	}
}

// add reports whether a field can have that value. Those that say where a request
// goes or ends, or what follows it, are words of ASCII.
func (f *fields) add(name, value string) bool {
	plain := isASCII(value)
	switch name {
	default:
		plain = !hasC1(value)
	case "host":
		f.hosts = append(f.hosts, value)
	case "content-length":
		f.lengths = append(f.lengths, value)
	case "transfer-encoding":
		f.encodings = append(f.encodings, value)
	case "upgrade":
		f.upgrades = append(f.upgrades, value)
	case "expect":
		f.expects = append(f.expects, value)
	case "content_length", "transfer_encoding":
		f.lookalike = true
	case "connection":
		for word := range strings.SplitSeq(lower(value), ",") {
			switch strings.Trim(word, " \t") {
			case "host", "content-length", "transfer-encoding":
				f.drops = true
			}
		}
	}
	return plain
}

// requestLine reads METHOD SP TARGET SP HTTP/1.x (RFC 9112, section 3).
func requestLine(req *Request, line string) (target string, minor byte, err error) {
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case method == "PRI" || strings.HasPrefix(version, "HTTP/2"):
		return "", 0, refuse(reason.HTTP2Cleartext)
	case !ok1 || !ok2 || !Looks([]byte(method)) || method == "" || len(method) > maxMethod || target == "":
		return "", 0, refuse(reason.HTTPMalformed)
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return "", 0, refuse(reason.HTTPMalformed)
	case method == "CONNECT":
		return "", 0, refuse(reason.HTTPConnect)
	}
	for i := range len(target) {
		if target[i] <= ' ' || target[i] == 0x7f {
			return "", 0, refuse(reason.HTTPMalformed)
		}
	}
	req.Method = method
	return target, version[len(version)-1] - '0', nil
}

// settle decides the host, the framing and the upgrade.
func (req *Request) settle(target string, minor byte, f *fields) error {
	if len(f.hosts) == 0 {
		return refuse(reason.HostAbsent)
	}
	if len(f.hosts) > 1 || f.hosts[0] == "" {
		return refuse(reason.HTTPMalformed)
	}
	req.Host = f.hosts[0]
	if err := req.checkTarget(target); err != nil {
		return err
	}
	if err := req.frame(minor, f); err != nil {
		return err
	}
	if len(f.upgrades) > 0 {
		req.Upgrade = lower(strings.Join(f.upgrades, ","))
	}
	return nil
}

// checkTarget takes a path, "*" of OPTIONS, or an absolute http URL whose
// authority is the Host field (RFC 9112, section 3.2).
func (req *Request) checkTarget(target string) error {
	if target[0] == '/' || target == "*" && req.Method == "OPTIONS" {
		return nil
	}
	rest, ok := strings.CutPrefix(lower(target), "http://")
	if !ok {
		return refuse(reason.HTTPMalformed)
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	if authority != lower(req.Host) {
		return refuse(reason.HTTPMalformed)
	}
	return nil
}

// frame decides where the body ends (RFC 9112, section 6), where a server has
// no choice but to agree.
func (req *Request) frame(minor byte, f *fields) error {
	if f.drops || f.lookalike || !f.expectsPlainly() {
		return refuse(reason.HTTPFraming)
	}
	switch {
	case len(f.encodings) > 0:
		if minor == 0 || len(f.encodings) > 1 || lower(f.encodings[0]) != "chunked" || len(f.lengths) > 0 {
			return refuse(reason.HTTPFraming)
		}
		req.chunked = true
	case len(f.lengths) > 0:
		n, err := strconv.ParseUint(f.lengths[0], 10, 63)
		// One spelling of each number: a zero before it makes it octal to some.
		if err != nil || len(f.lengths) > 1 || strconv.FormatUint(n, 10) != f.lengths[0] {
			return refuse(reason.HTTPFraming)
		}
		req.length = int64(n)
	}
	return nil
}

// expectsPlainly: a client may wait for a 100 before it sends a body. Servers
// have lost track of the body where the expectation was anything else.
func (f *fields) expectsPlainly() bool {
	if len(f.expects) == 0 {
		return true
	}
	return len(f.expects) == 1 && lower(f.expects[0]) == "100-continue" && len(f.lengths)+len(f.encodings) > 0
}

// readLine reads a line that ends in CRLF, at most max bytes, and holds neither
// another control character nor a bare CR or LF.
func readLine(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > max {
			return line, refuse(reason.HTTPTooLong)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, checkLine(line)
		case errors.Is(err, io.EOF):
			return line, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

func checkLine(line []byte) error {
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return refuse(reason.HTTPMalformed)
	}
	for _, c := range line[:len(line)-2] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return refuse(reason.HTTPMalformed)
		}
	}
	return nil
}

// isToken reports whether b is a field name (RFC 9110, section 5.6.2).
func isToken(b []byte) bool {
	for _, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return len(b) > 0
}

const maxChunk = math.MaxInt64 >> 4
