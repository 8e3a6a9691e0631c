package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sb/lib/fd"
	"sb/lib/reason"
)

// says sends a text on a connection by HTTP/1 and returns the first answer.
func (w *world) says(c *tls.Conn, text string) answered {
	w.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	return w.reads(bufio.NewReader(c))
}

func (w *world) reads(in *bufio.Reader) answered {
	w.t.Helper()
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("no whole answer: %v", err)
	}
	return answered{res.StatusCode, res.Header, string(body), res.ProtoMajor, res.Close}
}

const key = "X-Api-Key: " + placeholder + "\r\n"

// refusesRaw says a text, which must be refused before the server gets anything.
func (w *world) refusesRaw(text, why string) {
	w.t.Helper()
	before := len(w.hands.all())
	got := w.says(w.guest("http/1.1"), text)
	if got.header.Get("X-Sb-Reason") != why || got.status < 400 || !strings.Contains(got.body, why) {
		w.t.Errorf("%.80q: %d %v %q, want %s", text, got.status, got.header, got.body, why)
	}
	if n := len(w.hands.all()); n != before {
		w.t.Errorf("%.80q: the server got %d requests", text, n-before)
	}
}

// passesRaw is the control of a refusal.
func (w *world) passesRaw(text string) {
	w.t.Helper()
	before := len(w.hands.all())
	if got := w.says(w.guest("http/1.1"), text); got.status != 200 {
		w.t.Errorf("%.80q: %d %q", text, got.status, got.body)
	}
	if n := len(w.hands.all()); n != before+1 || w.hands.last(w.t).Header.Get("X-Api-Key") != secret {
		w.t.Errorf("%.80q: the server got %d requests, %v", text, n-before, w.hands.last(w.t).Header)
	}
}

// refuses asks by a client, which must be refused.
func (w *world) refuses(c *http.Client, r *http.Request, status int, why string) {
	w.t.Helper()
	before := len(w.hands.all())
	got := w.ask(c, r)
	if got.status != status || got.header.Get("X-Sb-Reason") != why || !strings.Contains(got.body, why) {
		w.t.Errorf("%s %s: %+v, want %d %s", r.Method, r.URL, got, status, why)
	}
	if n := len(w.hands.all()); n != before {
		w.t.Errorf("%s %s: the server got it", r.Method, r.URL)
	}
}

// passes asks by a client; the server must get it with the secret.
func (w *world) passes(c *http.Client, r *http.Request) answered {
	w.t.Helper()
	before := len(w.hands.all())
	got := w.ask(c, r)
	if n := len(w.hands.all()); got.status != 200 || n != before+1 || w.hands.last(w.t).Header.Get("X-Api-Key") != secret {
		w.t.Errorf("%s %s: %+v; the server got %d requests", r.Method, r.URL, got, n-before)
	}
	return got
}

// TestE1Host: a request for another host than the one that was verified is refused,
// not rewritten.
func TestE1Host(t *testing.T) {
	w := start(t, echo, anthropic())
	for _, host := range []string{"other.example", "api.example.evil.example", "api.example:8443", "api.example:0443", "127.0.0.1", "[::1]:443"} {
		w.refusesRaw("GET / HTTP/1.1\r\nHost: "+host+"\r\n"+key+"\r\n", "host-misdirected")
	}
	for _, host := range []string{"api.example.", "api.example@other.example", "api.example:x", "api.example/"} {
		w.refusesRaw("GET / HTTP/1.1\r\nHost: "+host+"\r\n"+key+"\r\n", "http-malformed")
	}
	w.refusesRaw("GET http://api.example/ HTTP/1.1\r\nHost: api.example\r\n"+key+"\r\n", "host-misdirected")
	w.refusesRaw("GET http://other.example/ HTTP/1.1\r\nHost: api.example\r\n"+key+"\r\n", "http-malformed")
	w.refusesRaw("GET http://api.example@other.example/ HTTP/1.1\r\nHost: api.example\r\n"+key+"\r\n", "http-malformed")
	w.refusesRaw("GET / HTTP/1.1\r\nHost: api.example\r\nHost: other.example\r\n"+key+"\r\n", "http-malformed")
	w.refusesRaw("GET / HTTP/1.1\r\n"+key+"\r\n", "host-absent")
	w.has("deny host-misdirected other.example")
	for _, host := range []string{"api.example", "API.example", "api.example:443"} {
		w.passesRaw("GET / HTTP/1.1\r\nHost: " + host + "\r\n" + key + "\r\n")
	}
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		r := request("GET", "/", nil)
		r.Host = "other.example"
		w.refuses(w.client(http2), r, 421, "host-misdirected")
		w.passes(w.client(http2), request("GET", "/", nil))
	})
}

// TestE2Framing: what two readers may take for different requests is refused.
func TestE2Framing(t *testing.T) {
	w := start(t, echo, anthropic())
	head := "POST / HTTP/1.1\r\nHost: api.example\r\n" + key
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: api.example\r\n" + key + "\r\n"
	for _, c := range []struct{ text, why string }{
		{head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled, "http-malformed"},
		{head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled, "http-framing"},
		{head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "http-framing"},
		{head + "Transfer-Encoding:\tchunked, identity\r\n\r\n", "http-framing"},
		{head + "Transfer_Encoding: chunked\r\n\r\n", "http-framing"},
		{head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "http-framing"},
		{head + "Content-Length: +1\r\n\r\na", "http-framing"},
		{head + "Content-Length: 0x1\r\n\r\na", "http-framing"},
		{head + "X: a\r\n b\r\n\r\n", "http-malformed"},
		{"POST / HTTP/1.1\nHost: api.example\n\n", "http-malformed"},
		{head + "X: a\rb\r\n\r\n", "http-malformed"},
		{head + "X: a\x00b\r\n\r\n", "http-malformed"},
		{head + "Connection: content-length\r\nContent-Length: 1\r\n\r\na", "http-framing"},
		{"GET  / HTTP/1.1\r\nHost: api.example\r\n\r\n", "http-malformed"},
		{"GET / HTTP/1.2\r\nHost: api.example\r\n\r\n", "http-malformed"},
	} {
		w.refusesRaw(c.text, c.why)
		w.has("deny " + c.why + " -")
	}
	w.passesRaw(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	w.passesRaw(head + "Content-Length: 5\r\n\r\nhello")
}

// A body that breaks off its framing is not passed on as a whole one, and what
// follows it is no request.
func TestE2BrokenBody(t *testing.T) {
	bodies := make(chan error, 10)
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		bodies <- err
	}, anthropic())
	head := "POST / HTTP/1.1\r\nHost: api.example\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
	for _, rest := range []string{"5;x=y\r\nhello\r\n0\r\n\r\n", "5\r\nhello!\r\n0\r\n\r\n", "-1\r\n", "0\r\nHost: other.example\r\n\r\n", "0\nGET / HTTP/1.1\r\n\r\n"} {
		c := w.guest("http/1.1")
		io.WriteString(c, head+rest)
		if err := <-bodies; err == nil {
			t.Errorf("%q: the server got a whole body", rest)
		}
		c.Close()
	}
	w.passesRaw(head + "0\r\n\r\n")
	if n := len(w.hands.all()); n != 6 {
		t.Errorf("the server got %d requests", n)
	}
}

// TestE3Bounds: a head has bounds, by both versions.
func TestE3Bounds(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		fill := func(n, size int) *http.Request {
			r := request("GET", "/", nil)
			for i := range n {
				r.Header.Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", size))
			}
			return r
		}
		w.refuses(w.client(http2), fill(250, 1), map[bool]int{true: 431, false: 403}[http2], "http-too-long")
		w.passes(w.client(http2), fill(150, 1))
		w.passes(w.client(http2), fill(2, 25<<10))
		if res, err := w.client(http2).Do(fill(3, 30<<10)); err == nil && res.StatusCode == 200 {
			t.Error("a head of 90 KiB passed")
		} else if err == nil {
			res.Body.Close()
		}
	})
}

// TestE4Methods: methods that do more than ask for something are refused.
func TestE4Methods(t *testing.T) {
	w := start(t, echo, anthropic())
	w.refusesRaw("CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n"+key+"\r\n", "http-connect")
	w.refusesRaw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2-cleartext")
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		for _, m := range []string{"TRACE", "PROPFIND", "FOO", "get", "Get"} {
			if !http2 && m != strings.ToUpper(m) {
				w.refuses(w.client(http2), request(m, "/", nil), 403, "http-malformed")
				continue
			}
			w.refuses(w.client(http2), request(m, "/", nil), 405, "http-method")
			w.has("deny http-method " + strings.ToLower(m))
		}
		for _, m := range methods {
			w.passes(w.client(http2), request(m, "/", nil))
		}
	})
}

// TestE5HopByHop: a request cannot have the next hop drop the credential, nor what
// frames it; fields for one hop do not pass.
func TestE5HopByHop(t *testing.T) {
	w := start(t, echo, bearer())
	auth := "Authorization: Bearer " + placeholder + "\r\n"
	for _, connection := range []string{"authorization", "close, Authorization", "keep-alive\r\nConnection: x, authorization"} {
		w.says(w.guest("http/1.1"), "GET / HTTP/1.1\r\nHost: api.example\r\n"+auth+"Connection: "+connection+"\r\nKeep-Alive: 1\r\nProxy-Authorization: Basic eA==\r\nTE: gzip\r\n\r\n")
		h := w.hands.last(t).Header
		if got := h.Get("Authorization"); got != "Bearer "+secret {
			t.Errorf("Connection: %s: the server got %q", connection, got)
		}
		for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authorization", "Te"} {
			if v := h.Get(name); v != "" {
				t.Errorf("Connection: %s: the server got %s: %s", connection, name, v)
			}
		}
	}
}

// TestE6Lookalikes: a second field for the credential, of any spelling, is refused.
func TestE6Lookalikes(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		for _, fields := range [][]string{{"X-Api-Key", "mine"}, {"X-Api_Key", "mine"}, {"X_Api_Key", "mine"}, {"x_api-key", placeholder}, {"X.Api.Key", "mine"}, {"X-Api~Key", placeholder}} {
			w.refuses(w.client(http2), request("GET", "/", nil, fields...), 403, "header-twice")
		}
		w.has("deny header-twice -")
		r := request("POST", "/", strings.NewReader("hello"))
		r.ContentLength = -1
		r.Trailer = http.Header{"X-Api-Key": {"mine"}}
		w.refuses(w.client(http2), r, 403, "header-twice")
		w.passes(w.client(http2), request("GET", "/", nil, "X-Api-Key-2", "mine"))
	})
}

// Of the fields behind a body those pass that were announced, and judged.
func TestE6Trailers(t *testing.T) {
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		rw.Header().Set("X-Trailer", fmt.Sprint(r.Trailer))
	}, anthropic())
	got := w.says(w.guest("http/1.1"), "POST / HTTP/1.1\r\nHost: api.example\r\n"+key+"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\nX-Api-Key: mine\r\nX-Other: 2\r\n\r\n")
	if got.header.Get("X-Trailer") != "map[X-Sum:[1]]" {
		t.Errorf("the server got the trailers %s", got.header.Get("X-Trailer"))
	}
}

// TestE7Values: a secret that no header can carry, or that could not be found in
// an answer, is not put in, and no request goes out; the refusal names it.
func TestE7Values(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		for _, bad := range []string{"sk-real\r\nX-Admin: yes", "sk-real-1\n", "short", strings.Repeat("x", 1<<20), " sk-real-1", "sk-real-\x00"} {
			w.set("anthropic", bad)
			w.refuses(w.client(http2), request("GET", "/", nil), 502, "secret-unusable")
		}
		w.has("deny secret-unusable anthropic")
		w.set("anthropic", secret)
		w.passes(w.client(http2), request("GET", "/", nil))
	})
}

func (w *world) set(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets[name] = value
}

// TestE22Unavailable: a secret that cannot be read is reported, not replaced by
// nothing; it is read for each request.
func TestE22Unavailable(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		w.set("anthropic", "")
		w.refuses(w.client(http2), request("GET", "/", nil), 502, "secret-unavailable")
		w.has("deny secret-unavailable anthropic")
		w.set("anthropic", secret)
		c := w.client(http2)
		w.passes(c, request("GET", "/", nil))
		w.set("anthropic", "sk-real-after-rotation-00")
		w.ask(c, request("GET", "/", nil))
		if got := w.hands.last(t).Header.Get("X-Api-Key"); got != "sk-real-after-rotation-00" {
			t.Errorf("after it was replaced the server got %q", got)
		}
	})
}

// What the keeper says is told without the code that it begins with.
func TestKeeperSaysWhy(t *testing.T) {
	near, far := pair(t, "secrets", fd.Stream)
	k := newKeeper(near)
	go func() {
		asked := bufio.NewScanner(far)
		for _, answer := range []string{"error missing secret corp: there is none\n", "value 8\nsk-12345"} {
			asked.Scan()
			io.WriteString(far, answer)
		}
	}()
	if h := k.get(t.Context(), "corp"); h.why != reason.SecretUnavailable || h.text != "secret corp: there is none" {
		t.Errorf("%+v", h)
	}
	// The control.
	if h := k.get(t.Context(), "corp"); h.why != "" || string(h.value) != "sk-12345" {
		t.Errorf("%+v", h)
	}
}

// A keeper that is gone is a refusal, not a wait.
func TestE22KeeperGone(t *testing.T) {
	near, far := pair(t, "secrets", fd.Stream)
	k := newKeeper(near)
	far.Close()
	for range 2 {
		if h := k.get(t.Context(), "anthropic"); h.why != reason.SecretUnavailable || h.text == "the keeper does not answer" {
			t.Errorf("a keeper that is gone: %+v", h)
		}
	}
}
