package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestE8Interim: interim answers are passed on as such, and the final one is the
// answer of its own request.
func TestE8Interim(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Link", "</"+r.Header.Get("X-Api-Key")+">")
			rw.WriteHeader(http.StatusEarlyHints)
			rw.Header().Del("Link")
			body, _ := io.ReadAll(r.Body) // sends 100
			fmt.Fprintf(rw, "%s %s", r.URL.Path, body)
		}, anthropic())
		c := w.client(http2)
		for i := range 3 {
			hints, goOn := "", false
			trace := &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					if code == http.StatusEarlyHints {
						hints = h.Get("Link")
					}
					return nil
				},
				Got100Continue: func() { goOn = true },
			}
			path := fmt.Sprintf("/%d", i)
			r := request("POST", path, strings.NewReader("body"), "Expect", "100-continue")
			r = r.WithContext(httptrace.WithClientTrace(context.Background(), trace))
			if got := w.ask(c, r); got.status != 200 || got.body != path+" body" {
				t.Errorf("%+v", got)
			}
			if hints != "</"+placeholder+">" || !goOn && !http2 {
				t.Errorf("early hints %q, 100 %v", hints, goOn)
			}
		}
	})
}

// TestE8Early: an answer that comes before the request's body has is passed on, and
// both go on at the same time.
func TestE8Early(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			http.NewResponseController(rw).EnableFullDuplex()
			rw.WriteHeader(200)
			rw.(http.Flusher).Flush()
			for in := bufio.NewReader(r.Body); ; {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				io.WriteString(rw, "you said "+line)
				rw.(http.Flusher).Flush()
			}
		}, anthropic())
		pr, pw := io.Pipe()
		res, err := w.client(http2).Do(request("POST", "/", pr))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		in := bufio.NewReader(res.Body)
		for _, line := range []string{"one\n", "two\n", secret[:10] + "\n"} {
			io.WriteString(pw, line)
			if got, err := in.ReadString('\n'); got != "you said "+line {
				t.Fatalf("%q, %v", got, err)
			}
		}
		pw.Close()
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("at the end: %q, %v", rest, err)
		}
	})
}

// TestE10Protocols: both sides speak the version that both can, and nothing is
// offered to the server that the guest has not offered.
func TestE10Protocols(t *testing.T) {
	w := start(t, echo, anthropic())
	for _, c := range []struct {
		offered []string
		want    string
	}{{[]string{"h2", "http/1.1"}, "h2"}, {[]string{"http/1.1"}, "http/1.1"}, {nil, ""}, {[]string{"x", "http/1.1", "h2"}, "h2"}} {
		g := w.guest(c.offered...)
		if got := g.ConnectionState().NegotiatedProtocol; got != c.want {
			t.Errorf("with %q offered: %q, want %q", c.offered, got, c.want)
		}
		g.Close()
	}
	w = startTLS(t, &tls.Config{NextProtos: []string{"http/1.1"}}, echo, anthropic())
	g := w.guest("h2", "http/1.1")
	if got := g.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("a server without h2: %q", got)
	}
}

// TestE10Events: what a server sends comes as it is sent, however little.
func TestE10Events(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		next := make(chan string)
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for s := range next {
				io.WriteString(rw, s)
				rw.(http.Flusher).Flush()
			}
		}, anthropic())
		next2 := func(s string) { next <- s }
		go next2("data: 0\n\n")
		res, err := w.client(http2).Do(request("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		buf := make([]byte, 1000)
		if n, err := io.ReadFull(res.Body, buf[:9]); err != nil || string(buf[:n]) != "data: 0\n\n" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		for _, s := range []string{"d", "a", "ta: ", "x\n\n", "{\"a\":"} {
			next <- s
			if n, err := io.ReadFull(res.Body, buf[:len(s)]); err != nil || string(buf[:n]) != s {
				t.Fatalf("%q, %v, want %q", buf[:n], err, s)
			}
		}
		close(next)
	})
}

// TestE10Trailers: trailers pass both ways, as gRPC needs them.
func TestE10Trailers(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			rw.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
			rw.Header().Set("Content-Type", "application/grpc")
			io.WriteString(rw, "answer")
			rw.Header().Set("Grpc-Status", "0")
			rw.Header().Set("Grpc-Message", "te="+r.Header.Get("Te")+" sum="+r.Trailer.Get("X-Sum")+" key="+r.Header.Get("X-Api-Key")+" enc="+r.Header.Get("Grpc-Accept-Encoding"))
		}, anthropic())
		r := request("POST", "/svc/Call", io.MultiReader(strings.NewReader("call")), "Te", "trailers", "Grpc-Accept-Encoding", "gzip")
		r.Trailer = http.Header{"X-Sum": {"42"}}
		res, err := w.client(http2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		want := "te=trailers sum=42 key=" + placeholder + " enc=identity"
		if string(body) != "answer" || res.Trailer.Get("Grpc-Status") != "0" || res.Trailer.Get("Grpc-Message") != want {
			t.Errorf("%q %v, want %q", body, res.Trailer, want)
		}
		w.has("note secret-echo -")
	})
}

// TestE10Streams: many requests on one connection at a time are answered.
func TestE10Streams(t *testing.T) {
	go1, all := make(chan struct{}), make(chan answered)
	w := start(t, func(rw http.ResponseWriter, r *http.Request) { <-go1; echo(rw, r) }, anthropic())
	c := w.client(true)
	const n = 200 // more than the broker takes at a time
	for i := range n {
		go func() { all <- w.ask(c, request("POST", fmt.Sprintf("/%d", i), strings.NewReader("x"))) }()
	}
	time.AfterFunc(50*time.Millisecond, func() { close(go1) })
	for range n {
		if got := <-all; got.status != 200 || !strings.Contains(got.body, "key="+placeholder) {
			t.Fatalf("%+v", got)
		}
	}
}

// TestE11Redirect: a redirect goes to the guest; who follows it to another name has
// the placeholder.
func TestE11Redirect(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Location", "https://other.example/?key="+r.Header.Get("X-Api-Key"))
			rw.WriteHeader(http.StatusTemporaryRedirect)
		}, anthropic())
		got := w.ask(w.client(http2), request("POST", "/", strings.NewReader("x")))
		if got.status != 307 || got.header.Get("Location") != "https://other.example/?key="+placeholder || len(w.hands.all()) != 1 {
			t.Errorf("%+v, %d requests", got, len(w.hands.all()))
		}
	})
}

// TestE3Uploads: bodies pass without being held, both ways.
func TestE3Uploads(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		const size = 32 << 20
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			rw.Header().Set("X-Got", fmt.Sprint(n))
			io.CopyN(rw, letters{}, size)
		}, anthropic())
		res, err := w.client(http2).Do(request("PUT", "/", io.LimitReader(letters{}, size)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil || res.Header.Get("X-Got") != fmt.Sprint(size) {
			t.Errorf("%d bytes, %v, up %s", n, err, res.Header.Get("X-Got"))
		}
	})
}

// A guest that does not read has the server wait.
func TestE3Slow(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		const size = 64 << 20
		var sent atomic.Int64
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			for n := 0; n < size; n += 64 << 10 {
				if _, err := io.CopyN(rw, letters{}, 64<<10); err != nil {
					return
				}
				sent.Add(64 << 10)
			}
		}, anthropic())
		res, err := w.client(http2).Do(request("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		last := int64(-1)
		for n := sent.Load(); n != last || n == 0; n = sent.Load() { // until it stands
			last = n
			time.Sleep(100 * time.Millisecond)
		}
		if last >= size/2 {
			t.Errorf("%d bytes were sent to a guest that reads nothing", last)
		}
		if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
			t.Errorf("%d bytes came, %v", n, err)
		}
	})
}

// letters reads as many of them as are wanted.
type letters struct{}

func (letters) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return len(b), nil
}

// TestLengths: what has a length keeps it, where nothing was replaced in it; an
// answer to HEAD, and one without a body.
func TestLengths(t *testing.T) {
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/none":
			rw.WriteHeader(http.StatusNoContent)
		case "/same":
			rw.WriteHeader(http.StatusNotModified)
		default:
			rw.Header().Set("Content-Length", "5")
			io.WriteString(rw, "hello")
		}
	}, anthropic())
	c := w.guest("http/1.1")
	in := bufio.NewReader(c)
	for _, ask := range []struct{ line, length, body string }{
		{"GET /", "5", "hello"}, {"HEAD /", "5", ""}, {"GET /none", "", ""}, {"GET /same", "", ""}, {"GET /", "5", "hello"},
	} {
		method, _, _ := strings.Cut(ask.line, " ")
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: api.example\r\n%s\r\n", ask.line, key)
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.Header.Get("Content-Length") != ask.length || string(body) != ask.body || res.Header.Get("Content-Type") != "" && method == "GET" && ask.body == "" {
			t.Errorf("%s: %v %q", ask.line, res.Header, body)
		}
	}
}

// TestRefusedOnce: a request that is refused is answered once, and behind the answer
// before it, whoever of net/http's happens to read it.
func TestRefusedOnce(t *testing.T) {
	w := start(t, echo, anthropic())
	for range 400 {
		c := w.guest("http/1.1")
		io.WriteString(c, "GET /1 HTTP/1.1\r\nHost: api.example\r\n"+key+"\r\nGET /2 HTTP/1.1\r\nHost: api.example\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
		all, _ := io.ReadAll(c)
		c.Close()
		if text := string(all); !strings.HasPrefix(text, "HTTP/1.1 200") || strings.Count(text, "HTTP/1.1 403") != 1 || strings.Count(text, "HTTP/1.1 ") != 2 {
			t.Fatalf("the guest got %q", text)
		}
	}
}

// TestPipelined: requests that come at once are answered one after the other; one
// that is refused comes after the answers before it, and ends the connection.
func TestPipelined(t *testing.T) {
	w := start(t, echo, anthropic())
	c := w.guest("http/1.1")
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: api.example\r\n" + key + "\r\n" }
	io.WriteString(c, get("/1")+get("/2")+"GET /3 HTTP/1.1\r\nHost: api.example\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"+get("/4"))
	in := bufio.NewReader(c)
	for _, path := range []string{"/1", "/2"} {
		if got := w.reads(in); got.status != 200 || !strings.Contains(got.body, path) {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := w.reads(in); got.header.Get("X-Sb-Reason") != "http-framing" {
		t.Errorf("the third: %+v", got)
	}
	if rest, _ := io.ReadAll(in); len(rest) > 0 || len(w.hands.all()) != 2 {
		t.Errorf("after it: %q; the server got %d requests", rest, len(w.hands.all()))
	}
	if end := <-c.NetConn().(*handed).end; end != "http-framing" {
		t.Errorf("it ended with %s", end)
	}
}

// TestEnds: however a side ends, the other learns it.
func TestEnds(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		c := w.client(http2)
		w.passes(c, request("GET", "/", nil))
		c.CloseIdleConnections()
		w.ended(1, "done")
		w.passes(c, request("GET", "/", nil))
		w.server.CloseClientConnections()
		w.ended(2, "done")
	})
}

func (w *world) ended(id uint64, want string) {
	w.t.Helper()
	w.mu.Lock()
	end := w.ends[id]
	w.mu.Unlock()
	select {
	case got := <-end:
		if got != want {
			w.t.Errorf("connection %d ended with %s, not %s", id, got, want)
		}
	case <-time.After(10 * time.Second):
		w.t.Errorf("connection %d does not end", id)
	}
}
