package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The worst that a guest can have the broker hold, in MB.
const (
	worst     = 256
	mostFlows = 512 // as of the gate
)

// TestWorst: a guest that opens every connection it may, asks for more than is
// answered at a time with heads as large as they may be, sends what its windows
// allow and takes nothing, has the broker hold so much and no more. Its control is an
// honest request, before and afterwards.
func TestWorst(t *testing.T) {
	p := startWorst(t)
	honest := func(when string) {
		if err := whole(p.client(true), "GET", "/100", nil, 100); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	honest("before")
	idle := p.resident()
	var most float64
	watched, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			most = max(most, p.resident())
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	var conns []net.Conn
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range mostFlows {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			c, err := hoard(p, i%8 == 0)
			if err != nil {
				return // it has enough
			}
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
		})
	}
	wg.Wait()
	last := -1.0
	for now := p.resident(); now > last+0.5; now = p.resident() { // until it stands
		last = now
		time.Sleep(time.Second)
	}
	close(end)
	<-watched
	t.Logf("idle %.1f MB; with %d of %d connections let in %.1f MB, at most %.1f MB", idle, len(conns), mostFlows, p.resident(), most)
	if most > worst {
		t.Errorf("the broker held %.0f MB, want at most %d", most, worst)
	}
	if most < idle+20 {
		t.Error("control: it held nothing")
	}
	for _, c := range conns {
		c.Close()
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until there is room again
		if err := whole(p.client(true), "GET", "/100", nil, 100); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("afterwards: %v", err)
		}
	}
}

// startWorst runs a broker with a server that sends without end and reads nothing.
func startWorst(t *testing.T) *proxy {
	t.Helper()
	dir := t.TempDir()
	if os.Getenv("SB_BIN") == "" {
		if out, err := exec.Command("go", "build", "-o", dir, "../../sb-broker").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Setenv("SB_BIN", dir)
	}
	certificate, _, err := newCertificate(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ErrorLog:  log.New(io.Discard, "", 0),
		HTTP2:     &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 16 << 10},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hoard" {
				serveBench(w, r)
				return
			}
			for i := range 20 {
				w.Header().Set(fmt.Sprint("X-Hoard-", i), strings.Repeat("y", 3000))
			}
			for {
				if _, err := io.CopyN(w, zeros{}, 32<<10); err != nil {
					return
				}
			}
		}),
		MaxHeaderBytes: 1 << 20,
	}
	t.Cleanup(func() { server.Close() })
	go server.ServeTLS(l, "", "")
	p, err := startBroker(dir, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

// hoard opens a connection by HTTP/2 with requests on it whose answers it does not
// take, as many bytes behind them as it may send at once, and a frame that says it is
// long and breaks off.
func hoard(p *proxy, broken bool) (net.Conn, error) {
	raw, err := p.dial()
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, &tls.Config{ServerName: boundName, RootCAs: p.trust, NextProtos: []string{"h2"}})
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	c.SetWriteDeadline(time.Now().Add(5 * time.Second)) // it may be left unread
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&b, nil)
	fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for i := range 4 {
		head.Reset()
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", boundName}, {":path", "/hoard"}, {"x-api-key", placeholder}} {
			enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		for n := range 18 {
			enc.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", n), Value: strings.Repeat("~}", 1500), Sensitive: true})
		}
		id, rest, first := uint32(2*i+1), head.Bytes(), true
		for len(rest) > 0 {
			part := rest[:min(len(rest), 16<<10)]
			rest = rest[len(part):]
			if first {
				fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndHeaders: len(rest) == 0})
			} else {
				fr.WriteContinuation(id, len(rest) == 0, part)
			}
			first = false
		}
		fr.WriteData(id, false, make([]byte, 15<<10))
	}
	if broken {
		b.Write([]byte{0x10, 0, 0, 0, 0, 0, 0, 0, 1}) // 1 MiB, it says
	}
	c.Write(b.Bytes())
	return c, nil
}
