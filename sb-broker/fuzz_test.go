package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/http1"
)

// recorder is a server that keeps what it is sent, and answers what net/http takes
// for requests.
type recorder struct {
	ln  net.Listener
	got chan recorded
}

type recorded struct {
	bytes []byte
	reqs  []*http.Request
}

func newRecorder(t testing.TB) *recorder {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	r := &recorder{ln: ln, got: make(chan recorded, 1)}
	config := &tls.Config{Certificates: []tls.Certificate{theWorld().certificate(apiName)}, NextProtos: []string{"http/1.1"}}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.got <- r.serve(tls.Server(c, config))
		}
	}()
	return r
}

func (r *recorder) serve(c net.Conn) (rec recorded) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	var all bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &all))
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			break
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			break
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		rec.reqs = append(rec.reqs, req)
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
		if req.Method != "HEAD" {
			answer += "ok"
		}
		io.WriteString(c, answer)
	}
	rec.bytes = all.Bytes()
	return rec
}

// strictly reads what the server was sent as the strict reader does.
func strictly(b []byte) (all []view, err error) {
	in := bufio.NewReader(bytes.NewReader(b))
	for {
		req, err := http1.Read(in)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		var body bytes.Buffer
		if err := req.Body(io.Discard, in, func(n int64) error {
			_, err := io.CopyN(&body, in, n)
			return err
		}); err != nil {
			return all, err
		}
		v := view{method: req.Method, body: body.String()}
		for i, line := range strings.Split(string(req.Head), "\r\n") {
			if i == 0 {
				v.uri = strings.Fields(line)[1]
			}
			name, value, _ := strings.Cut(line, ":")
			v.set(name, strings.Trim(value, " \t"))
		}
		all = append(all, v)
	}
}

// set enters a field that is compared.
func (v *view) set(name, value string) {
	switch strings.ToLower(name) {
	case "host":
		v.host = value
	case "x-api-key":
		v.key = value
	case "x-other":
		v.other = value
	}
}

// viewOf is how net/http understood a request.
func viewOf(r *http.Request) view {
	body, _ := io.ReadAll(r.Body)
	return view{r.Method, r.RequestURI, r.Host, r.Header.Get("X-Api-Key"), r.Header.Get("X-Other"), string(body)}
}

// FuzzForward: whatever a guest says by HTTP/1, what the server is sent is read by
// net/http, by nginx and by the strict reader as the same requests, each for the
// bound name; none has the secret whose placeholder the guest did not show, and no
// byte of the secret comes back. A request that nginx refuses it may, and what comes
// behind.
func FuzzForward(f *testing.F) {
	for _, s := range framings() {
		f.Add([]byte(s))
	}
	fw := newForwarder(f)
	var one sync.Mutex
	f.Fuzz(func(t *testing.T, said []byte) {
		one.Lock()
		defer one.Unlock()
		fw.same(t, said)
	})
}

// TestFramings: of what FuzzForward begins with, many are requests to all three; and
// nginx is not as strict as we are, or its word would be worth nothing.
func TestFramings(t *testing.T) {
	fw, all := newForwarder(t), 0
	for _, s := range framings() {
		all += fw.same(t, []byte(s))
	}
	if all < 100 {
		t.Errorf("%d requests were read by all three", all)
	}
	for _, lax := range []string{"GET /x HTTP/1.1\nHost: a\n\n", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;x\r\n\r\n", "GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n"} {
		if views, status := fw.n.reads(t, []byte(lax), nil); len(views) != 1 {
			t.Errorf("control: of %q nginx read %q, %d", lax, views, status)
		}
		if strict, err := strictly([]byte(lax)); err == nil {
			t.Errorf("control: of %q we read %q", lax, strict)
		}
	}
}

// forwarder is a broker before a server that keeps what it is sent, and nginx.
type forwarder struct {
	w *world
	r *recorder
	n *nginx
}

func newForwarder(t testing.TB) *forwarder {
	b := anthropic()
	b.Websocket = true
	return &forwarder{start(t, echo, b), newRecorder(t), startNginx(t)}
}

// same has a guest say something, and compares what three readers make of what comes
// out: so many requests.
func (fw *forwarder) same(t *testing.T, said []byte) int {
	t.Helper()
	fw.w.t = t
	h := fw.w.hand(apiName, fw.r.ln.Addr().String())
	c := tls.Client(h, &tls.Config{ServerName: apiName, RootCAs: fw.w.trust})
	defer c.Close()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(5 * time.Second))
	go func() {
		c.Write(said)
		c.CloseWrite()
	}()
	back, _ := io.ReadAll(c)
	c.Close()
	<-h.end
	h.upstream.Close() // as the gate does
	rec := <-fw.r.got
	strict, err := strictly(rec.bytes)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Fatalf("of %q the server got %q, which is %v", said, rec.bytes, err)
	}
	if len(strict) != len(rec.reqs) {
		t.Fatalf("of %q the server got %q: %d requests to net/http, %d to us", said, rec.bytes, len(rec.reqs), len(strict))
	}
	var methods []string
	for i, req := range rec.reqs {
		if v := viewOf(req); v != strict[i] || !strings.EqualFold(strings.TrimSuffix(v.host, ":443"), apiName) {
			t.Fatalf("of %q the server got %q: to net/http %q, to us %q", said, rec.bytes, v, strict[i])
		}
		methods = append(methods, req.Method)
	}
	if n := bytes.Count(rec.bytes, []byte(secret)); n > bytes.Count(said, []byte(placeholder)) || bytes.Contains(back, []byte(secret)) {
		t.Fatalf("of %q the server got %q, the guest %q", said, rec.bytes, back)
	}
	if len(rec.bytes) == 0 {
		return 0
	}
	return fw.n.agrees(t, rec.bytes, strict, methods)
}

// agrees compares nginx's reading with ours, and returns of how many requests they
// are the same.
func (n *nginx) agrees(t *testing.T, stream []byte, strict []view, methods []string) int {
	t.Helper()
	views, status := n.reads(t, stream, methods)
	at := 0
	for i, code := range status {
		if code != 200 {
			continue // refused
		}
		if i >= len(strict) || at >= len(views) || views[at] != strict[i] {
			t.Fatalf("of %q nginx read %q with %d, we %q", stream, views, status, strict)
		}
		at++
	}
	if at != len(views) || len(status) < len(strict) && (len(status) == 0 || status[len(status)-1] < 400) {
		t.Fatalf("of %q nginx read %q with %d, we %q", stream, views, status, strict)
	}
	return at
}
