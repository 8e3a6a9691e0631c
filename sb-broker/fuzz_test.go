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
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
	rec.bytes = all.Bytes()
	return rec
}

// strictly reads what the server was sent as the strict reader does.
func strictly(b []byte) (reqs []*http1.Request, err error) {
	in := bufio.NewReader(bytes.NewReader(b))
	for {
		req, err := http1.Read(in)
		if err == io.EOF {
			return reqs, nil
		}
		if err != nil {
			return reqs, err
		}
		if err := req.Body(io.Discard, in, func(n int64) error {
			_, err := io.CopyN(io.Discard, in, n)
			return err
		}); err != nil {
			return reqs, err
		}
		reqs = append(reqs, req)
	}
}

// FuzzForward: whatever a guest says by HTTP/1, what the server is sent is read by
// net/http and by the strict reader as the same requests, each for the bound name;
// none has the secret whose placeholder the guest did not show, and no byte of the
// secret comes back.
func FuzzForward(f *testing.F) {
	head := "POST /a HTTP/1.1\r\nHost: api.example\r\n" + key
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n",
		head + "Content-Length: 5\r\n\r\nhello" + "GET /b HTTP/1.1\r\nHost: api.example\r\n\r\n",
		head + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
		head + "Connection: x-api-key, close\r\nX-Api_Key: 1\r\n\r\n",
		head + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
		"OPTIONS * HTTP/1.1\r\nHost: api.example\r\n\r\nHEAD //x/../y?z#a HTTP/1.0\r\nHost: api.example\r\n\r\n",
		upgrade("/", "websocket") + "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	b := anthropic()
	b.Websocket = true
	w := start(f, echo, b)
	r := newRecorder(f)
	var one sync.Mutex
	f.Fuzz(func(t *testing.T, said []byte) {
		one.Lock()
		defer one.Unlock()
		w.t = t
		h := w.hand(apiName, r.ln.Addr().String())
		c := tls.Client(h, &tls.Config{ServerName: apiName, RootCAs: w.trust})
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
		rec := <-r.got
		reqs, err := strictly(rec.bytes)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			t.Fatalf("of %q the server got %q, which is %v", said, rec.bytes, err)
		}
		if len(reqs) != len(rec.reqs) {
			t.Fatalf("of %q the server got %q: %d requests to net/http, %d to us", said, rec.bytes, len(rec.reqs), len(reqs))
		}
		for i, req := range rec.reqs {
			if req.Method != reqs[i].Method || !strings.EqualFold(strings.TrimSuffix(req.Host, ":443"), apiName) {
				t.Fatalf("of %q the server got %q", said, rec.bytes)
			}
		}
		if n := bytes.Count(rec.bytes, []byte(secret)); n > bytes.Count(said, []byte(placeholder)) || bytes.Contains(back, []byte(secret)) {
			t.Fatalf("of %q the server got %q, the guest %q", said, rec.bytes, back)
		}
	})
}
