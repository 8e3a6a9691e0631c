package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// recorder2 is a server of HTTP/2 that keeps what it is sent, and what net/http takes
// for requests.
type recorder2 struct {
	net.Listener
	config *tls.Config
	conns  chan *record
}

// record is one connection.
type record struct {
	net.Conn
	ended func()
	done  chan struct{}

	mu    sync.Mutex
	sent  bytes.Buffer
	views []view
}

type recordKey struct{}

func newRecorder2(t testing.TB) *recorder2 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder2{ln, &tls.Config{Certificates: []tls.Certificate{theWorld().certificate(apiName)}, NextProtos: []string{"h2"}}, make(chan *record, 1)}
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true) // what it reads is kept between TLS and it
	srv := &http.Server{Protocols: p, ErrorLog: log.New(io.Discard, "", 0)}
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, recordKey{}, c) }
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, v := req.Context().Value(recordKey{}).(*record), viewOf(req)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.views = append(c.views, v)
		io.WriteString(w, "ok")
	})
	t.Cleanup(func() { srv.Close() })
	go srv.Serve(r)
	return r
}

// Accept implements net.Listener.
func (r *recorder2) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	rec := &record{Conn: tls.Server(c, r.config), done: make(chan struct{})}
	rec.ended = sync.OnceFunc(func() { close(rec.done) })
	r.conns <- rec
	return rec, nil
}

// Read implements net.Conn.
func (c *record) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.sent.Write(p[:n])
	c.mu.Unlock()
	return n, err
}

// Close implements net.Conn.
func (c *record) Close() error {
	c.ended()
	return c.Conn.Close()
}

// whole is what came, when the connection has ended.
func (c *record) whole() (sent []byte, views []view) {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.sent.Bytes()), slices.Clone(c.views)
}

// stream is a request of HTTP/2 as the strict reader sees it.
type stream struct {
	view
	pseudo         []string
	length         string
	fields         int
	trailers       bool // what comes now is behind the body
	ended, givenUp bool
}

// strictly2 reads what the server was sent: each request has each pseudo field once
// and before the others, and no field but what HTTP/2 allows; its length is true.
func strictly2(sent []byte) (all []view, givenUp int, err error) {
	rest, ok := bytes.CutPrefix(sent, []byte(http2.ClientPreface))
	if !ok {
		return nil, 0, fmt.Errorf("no preface")
	}
	fr := http2.NewFramer(io.Discard, bytes.NewReader(rest))
	streams := map[uint32]*stream{}
	var block []byte
	var failed error
	var of *stream
	dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if e := of.field(f.Name, f.Value); e != nil && failed == nil {
			failed = e
		}
	})
	head := func(s *stream, fragment []byte, last bool) error {
		if block = append(block, fragment...); !last {
			return nil
		}
		of = s
		_, err := dec.Write(block)
		block = nil
		return errors.Join(err, dec.Close(), failed)
	}
	for {
		f, err := fr.ReadFrame()
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		id := f.Header().StreamID
		s := streams[id]
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if s == nil {
				s = &stream{}
				streams[id] = s
			} else {
				s.trailers = true
			}
			s.ended = s.ended || f.StreamEnded()
			err = head(s, f.HeaderBlockFragment(), f.HeadersEnded())
		case *http2.ContinuationFrame:
			err = head(s, f.HeaderBlockFragment(), f.HeadersEnded())
		case *http2.DataFrame:
			s.body += string(f.Data())
			s.ended = s.ended || f.StreamEnded()
		case *http2.RSTStreamFrame:
			s.givenUp = true
		}
		if err != nil {
			return nil, 0, err
		}
	}
	for _, s := range streams {
		switch {
		case !s.ended || s.givenUp:
			givenUp++
			continue
		case len(s.pseudo) != 4:
			return nil, 0, fmt.Errorf("pseudo fields %q", s.pseudo)
		case s.length != "" && s.length != fmt.Sprint(len(s.body)):
			return nil, 0, fmt.Errorf("a length of %s before %d bytes", s.length, len(s.body))
		}
		all = append(all, s.view)
	}
	return all, givenUp, nil
}

// field takes a field of a head, or of what comes behind a body.
func (s *stream) field(name, value string) error {
	lower := strings.ToLower(name) == name
	switch {
	case strings.HasPrefix(name, ":"):
		if s.fields > 0 || s.trailers || slices.Contains(s.pseudo, name) {
			return fmt.Errorf("the pseudo field %s out of place", name)
		}
		s.pseudo = append(s.pseudo, name)
	case !lower || !isToken(name) || strings.ContainsAny(value, "\r\n\x00") || strings.Trim(value, " \t") != value:
		return fmt.Errorf("the field %q: %q", name, value)
	case slices.Contains([]string{"connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection", "host"}, name) || name == "te" && value != "trailers":
		return fmt.Errorf("the field %s of one connection", name)
	}
	if !strings.HasPrefix(name, ":") {
		s.fields++
	}
	switch {
	case name == ":method":
		s.method = value
	case name == ":path":
		s.uri = value
	case name == ":authority":
		s.host = value
	case name == "content-length" && !s.trailers:
		if s.length != "" {
			return fmt.Errorf("two lengths")
		}
		s.length = value
	case !s.trailers:
		s.set(name, value)
	}
	return nil
}

// frames2 are what a guest says by HTTP/2: a request of the fields given, whatever
// they are, with a body and trailers, and an ordinary one.
func frames2(fields, body, trailers string) []byte {
	var b, block bytes.Buffer
	b.WriteString(http2.ClientPreface)
	fr, enc := http2.NewFramer(&b, nil), hpack.NewEncoder(&block)
	fr.AllowIllegalWrites = true
	fr.WriteSettings()
	head := func(id uint32, text string, end bool) {
		block.Reset()
		for f := range strings.SplitSeq(text, "\x1e") {
			if name, value, ok := strings.Cut(f, "="); ok {
				enc.WriteField(hpack.HeaderField{Name: name, Value: value})
			}
		}
		first := block.Next(16 << 10)
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: block.Len() == 0, EndStream: end})
		for block.Len() > 0 {
			fr.WriteContinuation(id, block.Len() <= 16<<10, block.Next(16<<10))
		}
	}
	head(1, fields, body == "" && trailers == "")
	if body != "" {
		fr.WriteData(1, trailers == "", []byte(body))
	}
	if trailers != "" {
		head(1, trailers, true)
	}
	head(3, ordinary, true)
	return b.Bytes()
}

const (
	sep      = "\x1e"
	pseudos  = ":method=POST" + sep + ":scheme=https" + sep + ":authority=api.example" + sep + ":path=/a?b" + sep
	withKey  = "x-api-key=" + placeholder
	ordinary = ":method=GET" + sep + ":scheme=https" + sep + ":authority=api.example" + sep + ":path=/after" + sep + "x-other=second"
)

// framings2 are requests of HTTP/2 that readers, above all those that make HTTP/1 of
// them, may take differently, and their controls.
func framings2() (all [][3]string) {
	for _, fields := range []string{
		withKey, "x-other=a" + sep + withKey, "content-length=5", "content-length=4", "content-length=5" + sep + "content-length=5", "content-length=+5", "content-length=0",
		"transfer-encoding=chunked", "connection=close", "connection=x-other" + sep + "x-other=a", "upgrade=h2c", "te=trailers", "te=gzip", "keep-alive=1", "proxy-connection=x",
		"host=api.example", "host=evil.example", "X-Other=upper", "x other=a", "x-other:=a", "x-other=a\r\ncontent-length: 0", "x-other=a\nb", "x-other=a\x00", "x-other= a ", "x-other=\xc3\xa9\xff\x80\xa0",
		"x_api_key=1", ":method=GET", ":path=/late", ":authority=evil.example", ":status=200", ":protocol=websocket", "cookie=a=b" + sep + "cookie=c=d", "trailer=x-sum", "trailer=content-length", "expect=100-continue", "=x", "x-other=",
		"content-length=5" + sep + "transfer-encoding=chunked", "x-other=" + strings.Repeat("long ", 5000),
	} {
		for _, body := range []string{"", "hello"} {
			for _, trailers := range []string{"", "x-sum=1", "content-length=9" + sep + "host=evil.example" + sep + "x-other=late", ":path=/trailing"} {
				all = append(all, [3]string{pseudos + fields, body, trailers})
			}
		}
	}
	for _, fields := range []string{
		strings.Replace(pseudos, "/a?b", "*", 1), strings.Replace(pseudos, "/a?b", "", 1), strings.Replace(pseudos, "/a?b", "//evil.example/../x#y", 1), strings.Replace(pseudos, "/a?b", "https://evil.example/x", 1),
		strings.Replace(pseudos, "/a?b", "/a b", 1), strings.Replace(pseudos, "/a?b", "/a HTTP/1.1\r\nHost: evil.example\r\n\r\n", 1), strings.Replace(pseudos, "/a?b", "/\xc3\xa9?\xff%00%zz", 1),
		strings.Replace(pseudos, "POST", "GET /x HTTP/1.1\r\n", 1), strings.Replace(pseudos, "POST", "CONNECT", 1), strings.Replace(pseudos, "POST", "post", 1), strings.Replace(pseudos, "POST", "HEAD", 1), strings.Replace(pseudos, "POST", "OPTIONS", 1),
		strings.Replace(pseudos, "https", "http", 1), strings.Replace(pseudos, "https", "file", 1), strings.Replace(pseudos, "api.example", "API.example:443", 1), strings.Replace(pseudos, "api.example", "api.example\r\nX: y", 1),
		strings.Replace(pseudos, "api.example", "user@api.example", 1), strings.Replace(pseudos, "api.example", "evil.example", 1), strings.Replace(pseudos, ":authority=api.example"+sep, "host=api.example"+sep, 1), withKey + sep + pseudos, pseudos + pseudos, ":path=/x", "",
	} {
		all = append(all, [3]string{fields + withKey, "", ""}, [3]string{fields + withKey, "hello", ""})
	}
	return all
}

// forwarder2 is forwarder by HTTP/2.
type forwarder2 struct {
	w *world
	r *recorder2
	n *nginx
}

// same has a guest say a request and an ordinary one, and compares what net/http,
// nginx and the strict reader make of what comes out: so many requests.
func (fw *forwarder2) same(t *testing.T, fields, body, trailers string) int {
	t.Helper()
	fw.w.t = t
	h := fw.w.hand(apiName, fw.r.Addr().String())
	c := tls.Client(h, &tls.Config{ServerName: apiName, RootCAs: fw.w.trust, NextProtos: []string{"h2"}})
	defer c.Close()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	go c.Write(frames2(fields, body, trailers))
	fr := http2.NewFramer(io.Discard, c)
	for left := map[uint32]bool{1: true, 3: true}; len(left) > 0; {
		f, err := fr.ReadFrame()
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Fatalf("of %q %q %q the streams %v are left without an answer", fields, body, trailers, left)
		}
		if away, ok := f.(*http2.GoAwayFrame); err != nil || ok && away.ErrCode != http2.ErrCodeNo {
			break // for one that breaks the protocol
		}
		if _, reset := f.(*http2.RSTStreamFrame); reset || f.Header().Flags.Has(http2.FlagDataEndStream) && (f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameHeaders) {
			delete(left, f.Header().StreamID)
		}
	}
	c.Close()
	<-h.end
	h.upstream.Close() // as the gate does
	sent, views := (<-fw.r.conns).whole()
	if len(sent) == 0 {
		return 0
	}
	strict, givenUp, err := strictly2(sent)
	if err != nil {
		t.Fatalf("of %q %q %q the server got %q: %v", fields, body, trailers, sent, err)
	}
	theirs, refused := fw.n.reads2(t, sent, len(strict))
	for _, v := range strict {
		if !strings.EqualFold(strings.TrimSuffix(v.host, ":443"), apiName) || v.key == secret && !strings.Contains(fields, placeholder) {
			t.Fatalf("of %q %q %q the server got %q", fields, body, trailers, v)
		}
	}
	for name, got := range map[string][]view{"net/http": views, "nginx": theirs} {
		for _, v := range got {
			if !slices.Contains(strict, v) && givenUp == 0 {
				t.Fatalf("of %q %q %q %s read %q, we %q", fields, body, trailers, name, got, strict)
			}
		}
		if len(got) < len(strict) && (name != "nginx" || len(got)+refused < len(strict)) {
			t.Fatalf("of %q %q %q %s read %q and refused %d, we %q", fields, body, trailers, name, got, refused, strict)
		}
	}
	return len(theirs)
}

// FuzzForward2: what FuzzForward says, by HTTP/2, of a request of whatever fields
// beside an ordinary one.
func FuzzForward2(f *testing.F) {
	for _, s := range framings2() {
		f.Add(s[0], s[1], s[2])
	}
	fw := &forwarder2{start(f, echo, anthropic()), newRecorder2(f), startNginx(f)}
	var one sync.Mutex
	f.Fuzz(func(t *testing.T, fields, body, trailers string) {
		one.Lock()
		defer one.Unlock()
		fw.same(t, fields, body[:min(len(body), 16<<10)], trailers)
	})
}

// TestFramings2: of what FuzzForward2 begins with, many are requests to all three.
func TestFramings2(t *testing.T) {
	fw, all := &forwarder2{start(t, echo, anthropic()), newRecorder2(t), startNginx(t)}, 0
	for _, s := range framings2() {
		all += fw.same(t, s[0], s[1], s[2])
	}
	t.Log(all, "requests were read by all three")
	if all < 250 {
		t.Errorf("%d requests were read by all three", all)
	}
}
