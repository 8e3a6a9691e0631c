//go:build linux

package main

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

const changeOfCipher = "\x14\x03\x03\x00\x01\x01"

// serverHello is a record with the beginning of a ServerHello.
func serverHello(random string) []byte {
	b := append([]byte{2, 0, 0, 38, 3, 3}, random...)
	return record(append(b, 0, 0x13, 1, 0))
}

// The random of a HelloRetryRequest (RFC 8446, section 4.1.3), and another one.
const (
	retryRandom = "\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c"
	plainRandom = "0123456789abcdef0123456789abcdef"
)

// answers is a server that reads something, says so much and reads the rest.
func answers(with []byte) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := c.Read(make([]byte, 64<<10)); err == nil {
			c.Write(with)
			drain(c)
		}
	}
}

// TestB12SecondHello: a second hello must say what the first one did. It is let
// out only as a whole, only where the server asked for it, and nothing that came
// with it.
func TestB12SecondHello(t *testing.T) {
	s := start(t, "a.example", "b.example")
	first := firstBytes(t, client("a.example"))
	hello := func(name string, major byte) []byte {
		b := firstBytes(t, client(name))
		b[9] = major
		return b
	}
	a, b := hello("a.example", 3), hello("b.example", 3)
	behind := record(append([]byte{0, 0, 0, 0}, b[5:]...)) // a hello_request, then the hello
	for i, c := range []struct {
		what, random, second, why string
	}{
		{"B12 as asked for", retryRandom, changeOfCipher + string(a), "done"},
		{"B12 another name", retryRandom, string(b), "hello-changed"},
		{"B12 another name behind a change of cipher", retryRandom, changeOfCipher + string(b), "hello-changed"},
		{"B12 a version that OpenSSL does not look at", retryRandom, changeOfCipher + string(hello("b.example", 4)), "hello-malformed"},
		{"B12 longer than 128 KiB", retryRandom, changeOfCipher + "\x16\x03\x03\x40\x00\x01\x02\x01\x44" + string(make([]byte, 16380)), "hello-too-long"},
		{"B12 behind a hello_request", retryRandom, changeOfCipher + string(behind), "hello-malformed"},
		{"B12 behind data", retryRandom, "\x17\x03\x03\x00\x01\x00" + string(b), "hello-changed"},
		{"B12 behind a hello_request, not asked for", plainRandom, string(behind), "hello-changed"},
		{"B12 not asked for", plainRandom, string(a), "hello-changed"},
		{"B12 the rest of TLS 1.2", plainRandom, string(record(append([]byte{16, 0, 0, 33}, make([]byte, 33)...))) + changeOfCipher, "done"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := s.site("a.example", uint16(2200+i), answers(serverHello(c.random)))
			s.dns.at("b.example", w.at.Addr()) // allowed there too, and still another name
			conn := s.dial("a.example", w.at.Port())
			conn.Write(first)
			io.ReadFull(conn, make([]byte, len(serverHello(c.random))))
			io.WriteString(conn, c.second)
			conn.CloseWrite()
			readAll(conn)
			if c.why != "done" {
				s.has("deny tls a.example " + w.at.String() + " " + c.why + " -")
			}
			up := s.has("close tcp a.example " + w.at.String() + " " + c.why + " -").Word("up")
			may := []string{num(len(first))}
			switch {
			case c.why == "done":
				may = []string{num(len(first) + len(c.second))}
			case strings.HasPrefix(c.second, changeOfCipher): // passes by itself, if the rest comes later
				may = append(may, num(len(first)+len(changeOfCipher)))
			}
			if !slices.Contains(may, up) {
				t.Errorf("%s bytes went out, not one of %s", up, may)
			}
		})
	}
}

// TestB12BeforeTheAnswer: what a guest says before the server has answered waits
// for that, and is judged by it.
func TestB12BeforeTheAnswer(t *testing.T) {
	s := start(t, "a.example", "b.example")
	first := firstBytes(t, client("a.example"))
	for i, c := range []struct{ what, name, random, why string }{
		{"B12 the same name", "a.example", retryRandom, "done"},
		{"B12 another name", "b.example", retryRandom, "hello-changed"},
		{"B12 the same name, not asked for", "a.example", plainRandom, "hello-changed"},
		{"B12 an end for an answer", "b.example", "", "hello-changed"},
	} {
		t.Run(c.what, func(t *testing.T) {
			goOn := make(chan bool)
			w := s.site("a.example", uint16(2300+i), func(conn net.Conn) {
				<-goOn
				if c.random != "" {
					answers(serverHello(c.random))(conn)
					return
				}
				conn.(*siteConn).tcp.CloseWrite()
				drain(conn)
			})
			s.dns.at("b.example", w.at.Addr())
			conn := s.dial("a.example", w.at.Port())
			second := firstBytes(t, client(c.name))
			conn.Write(append(first[:len(first):len(first)], second...))
			time.Sleep(20 * time.Millisecond) // as much as may come before the answer
			close(goOn)
			conn.CloseWrite()
			readAll(conn)
			up := len(first)
			if c.why == "done" {
				up += len(second)
			}
			s.has("close tcp a.example " + w.at.String() + " " + c.why + " - up=" + num(up))
		})
	}
}

// A real server's HelloRetryRequest passes.
func TestB12HelloRetry(t *testing.T) {
	s := start(t, "a.example")
	config := &tls.Config{Certificates: []tls.Certificate{theAuthority().certificate("a.example")}, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.CurveP521}}
	s.secureWith(443, config, "a.example")
	s.passesTLS("a.example", 443, "a.example")
}

// TestB12BehindEarlyData: a second hello with another name is found behind early
// data and whatever else a lax server skips.
func TestB12BehindEarlyData(t *testing.T) {
	s := start(t, "a.example", "b.example")
	first := offersEarlyData(firstBytes(t, client("a.example")))
	data := append([]byte{23, 3, 3, 0x10, 0}, make([]byte, 0x1000)...)
	for i, c := range []struct {
		what, name, why string
		between         []byte
	}{
		{"B12 early data", "b.example", "hello-changed", data},
		{"B12 early data, the same name", "a.example", "done", data},
		{"B12 alert", "b.example", "hello-changed", []byte{21, 3, 3, 0, 2, 1, 90}},
		{"B12 change of cipher in another version", "b.example", "hello-changed", []byte{20, 3, 1, 0, 1, 1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			ask := make(chan bool)
			w := s.site("a.example", uint16(2100+i), func(conn net.Conn) {
				go func() { <-ask; conn.Write(serverHello(retryRandom)) }()
				drain(conn)
			})
			s.dns.at("b.example", w.at.Addr())
			conn := s.dial("a.example", w.at.Port())
			conn.Write(first)
			conn.Write(c.between)
			s.receives(w, len(first)+len(c.between))
			close(ask)
			second := firstBytes(t, client(c.name))
			conn.Write(second)
			conn.CloseWrite()
			readAll(conn)
			up := len(first) + len(c.between)
			if c.why == "done" {
				up += len(second)
			}
			s.has("close tcp a.example " + w.at.String() + " " + c.why + " - up=" + num(up))
		})
	}
}
