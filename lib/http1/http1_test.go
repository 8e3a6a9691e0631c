package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"sb/lib/reason"
)

const get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"

func TestRead(t *testing.T) {
	for _, c := range []struct {
		id, in string
		why    reason.Code
	}{
		{"C1", get, ""},
		{"", "GET /a?b=c#d HTTP/1.1\r\nHost: a.example:8080\r\nX: y\r\n\r\n", ""},
		{"", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"", "GET / HTTP/1.0\r\nhOsT:a.example\r\n\r\n", ""},
		{"", "M-SEARCH / HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"C2", "GET http://A.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"C2", "GET http://a.example?x HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc", ""},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", ""},
		{"C6", "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", ""},

		{"C1", "GET / HTTP/1.1\r\n\r\n", reason.HostAbsent},
		{"C1", "GET / HTTP/1.0\r\n\r\n", reason.HostAbsent},
		{"C1", "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C1", "GET / HTTP/1.1\r\nHost:\r\n\r\n", reason.HTTPMalformed},
		{"C2", "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C2", "GET http://u@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C2", "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C2", "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C2", "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", reason.HTTPMalformed},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3, 3\r\n\r\nabc", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: +3\r\n\r\nabc", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: -3\r\n\r\nabc", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0x3\r\n\r\nabc", reason.HTTPFraming},
		{"C3", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 99999999999999999999\r\n\r\nabc", reason.HTTPFraming},
		{"C3", "GET / HTTP/1.1\nHost: a.example\n\n", reason.HTTPMalformed},
		{"C3", "GET / HTTP/1.1\r\nHost: a.example\n\r\n", reason.HTTPMalformed},
		{"C3", "GET / HTTP/1.1\r\nX: a\rb\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C3", "GET / HTTP/1.1\r\nX: a\x00b\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C3", "GET / HTTP/1.1\r\nHost: a.example\r\n folded: x\r\n\r\n", reason.HTTPMalformed},
		{"C3", "GET / HTTP/1.1\r\nHost a.example\r\n\r\n", reason.HTTPMalformed},
		{"C3", "GET / HTTP/1.1\r\n: x\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"C4", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", reason.HTTP2Cleartext},
		{"C4", "GET / HTTP/2.0\r\nHost: a.example\r\n\r\n", reason.HTTP2Cleartext},
		{"C5", "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n", reason.HTTPConnect},
		{"", "GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"", "GET / HTTP/1.1 \r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"", "GET /\t HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"", "GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"", "GET / HTTP/0.9\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"", "GET /\r\n\r\n", reason.HTTPMalformed},
		{"", "get / HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"", "\r\n" + get, reason.HTTPMalformed},
		{"", strings.Repeat("A", 30) + " / HTTP/1.1\r\nHost: a.example\r\n\r\n", reason.HTTPMalformed},
		{"E3", "GET / HTTP/1.1\r\nHost: a.example\r\nX: " + strings.Repeat("a", MaxHead) + "\r\n\r\n", reason.HTTPTooLong},
		{"E3", "GET / HTTP/1.1\r\nHost: a.example\r\n" + strings.Repeat("X: y\r\n", MaxFields) + "\r\n", reason.HTTPTooLong},
	} {
		req, err := Read(bufio.NewReader(strings.NewReader(c.in)))
		var r Refused
		errors.As(err, &r)
		if r.Code != c.why || (c.why == "") != (err == nil) {
			t.Errorf("%s %.60q: %v, want %q", c.id, c.in, err, c.why)
		}
		if err == nil && (!strings.HasPrefix(strings.ToLower(req.Host), "a.example") || !strings.HasPrefix(c.in, string(req.Head))) {
			t.Errorf("%s %.60q: host %q, head %q", c.id, c.in, req.Host, req.Head)
		}
	}
	if _, err := Read(bufio.NewReader(strings.NewReader(""))); err != io.EOF {
		t.Errorf("nothing: %v, want EOF", err)
	}
	if _, err := Read(bufio.NewReader(strings.NewReader(get[:20]))); err != io.ErrUnexpectedEOF {
		t.Errorf("a cut head: %v", err)
	}
}

// copier passes bytes as the gate does.
func copier(w io.Writer, r *bufio.Reader) func(int64) error {
	return func(n int64) error {
		m, err := io.CopyN(w, r, n)
		if err == io.EOF && m < n {
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

func TestBody(t *testing.T) {
	for _, c := range []struct {
		te, body string
		why      reason.Code
	}{
		{"Content-Length: 5", "hello", ""},
		{"Transfer-Encoding: chunked", "5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n", ""},
		{"Transfer-Encoding: chunked", "0\r\nX-Sum: 1\r\n\r\n", ""},
		{"Transfer-Encoding: chunked", "5;ext=1\r\nhello\r\n0\r\n\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "5 \r\nhello\r\n0\r\n\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "0x5\r\nhello\r\n0\r\n\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "-1\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "+5\r\nhello\r\n0\r\n\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "1_0\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", strings.Repeat("0", 80) + "5\r\nhello\r\n0\r\n\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "ffffffffffffffff\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "5\nhello\r\n0\r\n\r\n", reason.HTTPMalformed},
		{"Transfer-Encoding: chunked", "5\r\nhelloX\r\n0\r\n\r\n", reason.HTTPFraming},
		{"Transfer-Encoding: chunked", "5\r\nhello\n0\r\n\r\n", reason.HTTPMalformed},
		{"Transfer-Encoding: chunked", "0\r\nX y\r\n\r\n", reason.HTTPMalformed},
		{"Transfer-Encoding: chunked", "0\r\nX: " + strings.Repeat("a", MaxHead) + "\r\n\r\n", reason.HTTPTooLong},
	} {
		in := "POST / HTTP/1.1\r\nHost: a.example\r\n" + c.te + "\r\n\r\n" + c.body + get
		r := bufio.NewReader(strings.NewReader(in))
		req, err := Read(r)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = req.Body(&out, r, copier(&out, r))
		var ref Refused
		errors.As(err, &ref)
		if ref.Code != c.why || (c.why == "") != (err == nil) {
			t.Errorf("%.40q: %v, want %q", c.body, err, c.why)
			continue
		}
		stream := NewStream(strings.NewReader(in), func(*Request) error { return nil })
		all, err := io.ReadAll(stream)
		if c.why != "" {
			if !errors.As(err, &ref) || !stream.Broken() {
				t.Errorf("%.40q as a stream: %v, broken %v", c.body, err, stream.Broken())
			}
			continue
		}
		if err != nil || string(all) != in {
			t.Errorf("%.40q as a stream: %v, %.80q", c.body, err, all)
		}
		if out.String() != c.body {
			t.Errorf("%.40q was passed as %.40q", c.body, out.String())
		}
		if next, err := Read(r); err != nil || string(next.Head) != get {
			t.Errorf("%.40q: the next request: %v", c.body, err)
		}
	}
}

func TestSwitched(t *testing.T) {
	for in, want := range map[string]bool{
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nraw": true,
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 X\r\n\r\n":            true,
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                      false,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 426 No\r\n\r\n":              false,
		"HTTP/1.1 1010 X\r\n\r\n":                                           false, "HTTP/1.1 101\r\n\r\nraw": true, "HTTP/2.0 101 X\r\n\r\n": false, "101\r\n\r\n": false, "\r\n": false,
		"garbage\r\n\r\n": false,
	} {
		var out bytes.Buffer
		r := bufio.NewReader(strings.NewReader(in))
		got, err := Switched(&out, r)
		io.Copy(&out, r)
		if err != nil || got != want || out.String() != in {
			t.Errorf("%q: %v, %v, passed %q", in, got, err, out.String())
		}
	}
	for _, in := range []string{
		"HTTP/1.1 101 X\r\nX: " + strings.Repeat("a", MaxHead) + "\r\n\r\n",
		"HTTP/1.1 101 X\r\n" + strings.Repeat("X: y\r\n", MaxFields+1) + "\r\n",
	} {
		if got, err := Switched(io.Discard, bufio.NewReader(strings.NewReader(in))); got || !errors.Is(err, Refused{reason.HTTPTooLong}) {
			t.Errorf("an endless head: %v, %v", got, err)
		}
	}
}

func TestLooks(t *testing.T) {
	for in, want := range map[string]bool{"": true, "G": true, "GET ": true, "GET /": true, "M-SEARCH *": true,
		"get ": false, " ": false, "\x16\x03\x01": false, "SSH-2.0-x": false, "SSH-": true, "EHLO x": true, strings.Repeat("A", 21): false} {
		if got := Looks([]byte(in)); got != want {
			t.Errorf("Looks(%q) = %v", in, got)
		}
	}
}
