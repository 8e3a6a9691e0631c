package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
)

// clients are one through the broker and one past it.
func (w *world) clients(http2 bool) map[string]*http.Client {
	past := w.client(http2)
	tr := past.Transport.(*http.Transport)
	tr.TLSClientConfig = &tls.Config{RootCAs: theWorld().pool}
	tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", w.addr()) }
	return map[string]*http.Client{"broker": w.client(http2), "direct": past}
}

// BenchmarkRequest is a small request on a connection that stands.
func BenchmarkRequest(b *testing.B) { bench(b, 100) }

// BenchmarkDownload is an answer of 64 MiB.
func BenchmarkDownload(b *testing.B) { bench(b, 64<<20) }

func bench(b *testing.B, size int) {
	for _, http2 := range []bool{false, true} {
		w := start(b, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", strconv.Itoa(size))
			io.CopyN(rw, letters{}, int64(size))
		}, anthropic())
		for name, c := range w.clients(http2) {
			c.Timeout = 0
			b.Run(map[bool]string{false: "http1", true: "http2"}[http2]+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					res, err := c.Do(request("GET", "/", nil))
					if err != nil {
						b.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, res.Body); n != int64(size) || err != nil {
						b.Fatal(n, err)
					}
					res.Body.Close()
				}
			})
		}
	}
}
