package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"sb/lib/fd"
	"sb/lib/handover"
	"sb/lib/reason"
)

// upgrade asks for another protocol.
func upgrade(path, protocol string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: api.example\r\n" + key + "Connection: Upgrade\r\nUpgrade: " + protocol + "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
}

// frame is a message of a server's on a websocket, or with another first byte a part
// of one.
func frame(first byte, text string) string { return string([]byte{first, byte(len(text))}) + text }

// socket answers a request for a websocket with 101 and sends lines back, each as a
// message.
func socket(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/no" {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	c, in, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "HTTP/1.1 101 Hello %[2]s\r\nConnection: Upgrade\r\nUpgrade: %[1]s\r\nX-Key: %[2]s\r\n\r\n", map[bool]string{true: "h2c", false: "websocket"}[r.URL.Path == "/other"], r.Header.Get("X-Api-Key"))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch key := r.Header.Get("X-Api-Key"); line {
		case "key\n":
			io.WriteString(c, frame(0x81, key+"\n"))
		case "in parts\n":
			io.WriteString(c, frame(0x01, key[:9])+frame(0x89, "")+frame(0x00, key[9:20])+frame(0x80, key[20:]+"\n"))
		case "packed\n":
			io.WriteString(c, frame(0xc1, "no telling"))
		default:
			io.WriteString(c, frame(0x81, line))
		}
	}
}

// TestE9Websocket: another protocol is refused unless a binding says websocket, and
// then any other. What the server says is looked through even there.
func TestE9Websocket(t *testing.T) {
	w := start(t, socket, anthropic())
	w.refusesRaw(upgrade("/", "websocket"), "websocket-unbound")
	w.has("deny websocket-unbound websocket")
	b := anthropic()
	b.Websocket = true
	w = start(t, socket, b)
	w.refusesRaw(upgrade("/", "h2c"), "websocket-unbound")
	w.refusesRaw(upgrade("/", "tcp"), "websocket-unbound")
	for say, why := range map[string]string{"key\n": "secret-echo", "in parts\n": "secret-echo", "packed\n": "echo-unreadable"} {
		w.echoesOnSocket(say, why)
	}
}

// echoesOnSocket has a server say something on a websocket that ends it.
func (w *world) echoesOnSocket(say, why string) {
	t := w.t
	t.Helper()
	c := w.guest("http/1.1")
	io.WriteString(c, upgrade("/", "websocket"))
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.Status != "101 Switching Protocols" || res.Header.Get("X-Key") != placeholder {
		t.Fatalf("%+v, %v", res, err)
	}
	got := w.hands.last(t).Header
	if got.Get("X-Api-Key") != secret || got.Get("Sec-Websocket-Extensions") != "" || got.Get("Upgrade") != "websocket" {
		t.Errorf("the server got %v", got)
	}
	for _, line := range []string{"hello\n", "GET / HTTP/1.1\n", placeholder + "\n"} {
		io.WriteString(c, line)
		if s, err := in.ReadString('\n'); s != frame(0x81, line) {
			t.Errorf("%q, %v, want %q", s, err, line)
		}
	}
	io.WriteString(c, say)
	if rest, err := io.ReadAll(in); strings.Contains(string(rest), secret[:4]) || strings.Contains(string(rest), secret[12:]) {
		t.Errorf("%q: the guest got %q, %v", say, rest, err)
	}
	w.has("deny " + why + " -")
	if end := <-c.NetConn().(*handed).end; end != why {
		t.Errorf("%q: it ended with %s", say, end)
	}
}

// TestE9Early: what follows a request for a websocket before its answer is read in
// no way at all; and a server that says no has HTTP go on.
func TestE9Early(t *testing.T) {
	b := anthropic()
	b.Websocket = true
	w := start(t, socket, b)
	c := w.guest("http/1.1")
	io.WriteString(c, upgrade("/no", "websocket")+"GET /smuggled HTTP/1.1\r\nHost: api.example\r\n"+key+"\r\n")
	if got := w.reads(bufio.NewReader(c)); got.status != 404 || !got.last {
		t.Errorf("%+v", got)
	}
	if n := len(w.hands.all()); n != 1 {
		t.Errorf("the server got %d requests", n)
	}
}

// A server that switches to something else than it was asked for is not believed.
func TestE9Other(t *testing.T) {
	b := anthropic()
	b.Websocket = true
	w := start(t, socket, b)
	if got := w.says(w.guest("http/1.1"), upgrade("/other", "websocket")); got.status != 403 || got.header.Get("X-Sb-Reason") != "websocket-unbound" {
		t.Errorf("%+v", got)
	}
	w.has("deny websocket-unbound h2c")
}

// TestE15Unverified: a server that does not prove the name gets nothing, and the
// guest no answer; its request is not even read.
func TestE15Unverified(t *testing.T) {
	expired := theWorld().certificateAt(time.Now().Add(-48*time.Hour), apiName)
	early := theWorld().certificateAt(time.Now().Add(24*time.Hour), apiName)
	self, err := tls.X509KeyPair(selfSigned())
	if err != nil {
		t.Fatal(err)
	}
	for what, config := range map[string]*tls.Config{
		"another name": {Certificates: []tls.Certificate{theWorld().certificate("other.example")}},
		"expired":      {Certificates: []tls.Certificate{expired}},
		"not yet":      {Certificates: []tls.Certificate{early}},
		"self-signed":  {Certificates: []tls.Certificate{self}},
		"TLS 1.1":      {MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
	} {
		t.Run(what, func(t *testing.T) {
			w := startTLS(t, config, echo, anthropic())
			h := w.hand(apiName, w.addr())
			c := tls.Client(h, &tls.Config{ServerName: apiName, RootCAs: w.trust})
			if err := c.Handshake(); err == nil {
				t.Error("the guest was told that all is well")
			}
			if end := <-h.end; end != "upstream-unverified" {
				t.Errorf("it ended with %s", end)
			}
			w.has("deny upstream-unverified -")
			if w.asked > 0 || len(w.hands.all()) > 0 {
				t.Errorf("the keeper was asked %d times, the server got %d requests", w.asked, len(w.hands.all()))
			}
		})
	}
	w := start(t, echo, anthropic())
	w.passes(w.client(false), request("GET", "/", nil))
}

// A server that ends the connection, or says something else, is another matter.
func TestE15NoTLS(t *testing.T) {
	for what, c := range map[string]struct{ says, why string }{"end": {"", "upstream-failed"}, "text": {"HTTP/1.1 400 Bad Request\r\n\r\n", "upstream-unverified"}} {
		t.Run(what, func(t *testing.T) {
			w := start(t, echo, anthropic())
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				conn, err := ln.Accept()
				if err == nil {
					conn.Read(make([]byte, 1000))
					io.WriteString(conn, c.says)
					conn.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, conn)
					conn.Close()
				}
			}()
			h := w.hand(apiName, ln.Addr().String())
			if err := tls.Client(h, &tls.Config{ServerName: apiName, RootCAs: w.trust}).Handshake(); err == nil {
				t.Error("the guest was told that all is well")
			}
			if end := <-h.end; end != c.why {
				t.Errorf("it ended with %s", end)
			}
		})
	}
}

// A guest that does not trust the authority, or speaks no TLS, is told apart.
func TestGuestHandshake(t *testing.T) {
	w := start(t, echo, anthropic())
	h := w.hand(apiName, w.addr())
	if err := tls.Client(h, &tls.Config{ServerName: apiName, RootCAs: theWorld().pool}).Handshake(); err == nil {
		t.Error("the guest trusts another authority")
	}
	if end := <-h.end; end != "guest-handshake" {
		t.Errorf("it ended with %s", end)
	}
	h = w.hand("unbound.example", w.addr())
	if end := <-h.end; end != "broker-absent" {
		t.Errorf("a name that is not bound ended with %s", end)
	}
}

// TestE17Proxy: a proxy of the environment is no way to a server.
func TestE17Proxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("https_proxy", "http://127.0.0.1:1")
	w := start(t, echo, anthropic())
	if newClient(wide, new(http.Protocols)).Proxy != nil {
		t.Error("the broker asks for a proxy")
	}
	c := w.client(false)
	c.Transport.(*http.Transport).Proxy = nil
	w.passes(c, request("GET", "/", nil))
	if _, err := dialHanded(t.Context(), "tcp", "api.example:443"); err == nil {
		t.Error("the broker dials")
	}
}

// TestUpstreamFails: a server that ends in the middle is passed on as that.
func TestUpstreamFails(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/later" {
				io.WriteString(rw, "begun")
				rw.(http.Flusher).Flush()
			}
			panic(http.ErrAbortHandler)
		}, anthropic())
		c := w.client(http2)
		if res, err := c.Do(request("POST", "/", strings.NewReader("x"))); err == nil {
			t.Errorf("the guest got %s", res.Status)
		}
		w.has("note upstream-failed -")
		res, err := c.Do(request("POST", "/later", strings.NewReader("x")))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("the guest got all of %q", body)
		}
	})
}

// TestGoAway: a server of HTTP/2 that takes no more requests finishes those that it
// has; the next one goes over another connection.
func TestGoAway(t *testing.T) {
	finish := make(chan bool)
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Conn", r.RemoteAddr)
		switch r.URL.Path {
		case "/long":
			rw.(http.Flusher).Flush()
			<-finish
			io.WriteString(rw, "finished")
		case "/bye":
			rw.Header().Set("Connection", "close") // GOAWAY
		}
	}, anthropic())
	c := w.client(true)
	long, err := c.Do(request("GET", "/long", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer long.Body.Close()
	w.ask(c, request("GET", "/bye", nil))
	within := time.Now().Add(10 * time.Second)
	for {
		got := w.ask(c, request("GET", "/next", nil))
		if conn := got.header.Get("X-Conn"); got.status == 200 && conn != long.Header.Get("X-Conn") {
			break
		}
		if got.status != 200 && got.status != 503 || time.Now().After(within) {
			t.Fatalf("%+v", got)
		}
	}
	close(finish)
	if body, err := io.ReadAll(long.Body); string(body) != "finished" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}

// TestE8Refused: an answer that comes instead of a body that is still being sent is
// passed on.
func TestE8Refused(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			http.Error(rw, "too much", http.StatusRequestEntityTooLarge)
		}, anthropic())
		c := w.client(http2)
		size := int64(8 << 20)
		if !http2 {
			size = 128 << 10 // a server of HTTP/1 has the connection reset rather than read much more
		}
		got := w.ask(c, request("POST", "/", io.LimitReader(letters{}, size)))
		if got.status != 413 || got.body != "too much\n" {
			t.Errorf("%+v", got)
		}
		if got := w.ask(c, request("GET", "/", nil)); got.status != 413 && got.status != 503 {
			t.Errorf("the next: %+v", got)
		}
	})
}

// TestE10Answers: all requests of all connections together are bounded, and one that
// has been answered makes room.
func TestE10Answers(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		c := w.client(http2)
		w.b.answering.Add(maxAnswers)
		if got := w.ask(c, request("GET", "/", nil)); got.status != 503 || got.header.Get("X-Sb-Reason") != "memory-budget" || len(w.hands.all()) > 0 {
			t.Errorf("one too many: %+v", got)
		}
		w.has("deny memory-budget -")
		w.b.answering.Add(-1)
		for range 3 {
			w.passes(c, request("GET", "/", nil))
		}
	})
}

// TestE9Mixed: one credential's binding lets no other be used for a websocket.
func TestE9Mixed(t *testing.T) {
	plain, socket := anthropic(), bearer()
	socket.Websocket, socket.Placeholder = true, "holder-socket-0123456789"
	w := start(t, echo, plain, socket)
	for _, c := range []struct {
		fields string
		code   int
	}{{key, 403}, {key + "Authorization: Bearer " + socket.Placeholder + "\r\n", 403}, {"Authorization: Bearer " + socket.Placeholder + "\r\n", 200}, {"", 200}} {
		guest := w.guest("http/1.1")
		fmt.Fprintf(guest, "GET / HTTP/1.1\r\nHost: api.example\r\n%sConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", c.fields)
		res, err := http.ReadResponse(bufio.NewReader(guest), nil)
		if err != nil || res.StatusCode != c.code {
			t.Errorf("%q: %v, %v", c.fields, res, err)
		}
		guest.Close()
	}
}

// TestHandedFiles: what is no connection is none, and the other half is closed.
func TestHandedFiles(t *testing.T) {
	w := start(t, echo, anthropic())
	for _, bad := range []string{"guest", "upstream"} {
		near, far := pair(t, bad, fd.Stream)
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		c := handover.Conn{Name: apiName, At: mustAddrPort("192.0.2.1:443"), Guest: null, Upstream: far}
		if bad == "upstream" {
			c.Guest, c.Upstream = far, null
		}
		if why := w.b.handle(c); why != reason.DescriptorsOut {
			t.Errorf("no %s: %s", bad, why)
		}
		near.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := near.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("no %s: the other half: %v", bad, err)
		}
	}
	w.passes(w.client(true), request("GET", "/", nil))
}
