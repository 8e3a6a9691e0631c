//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func get(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }

// says sends bytes to a name, ends, and returns all that comes back.
func (s *sandbox) says(name string, port uint16, bytes string) string {
	s.t.Helper()
	c := s.dial(name, port)
	defer c.Close()
	io.WriteString(c, bytes)
	c.CloseWrite()
	return readAll(c)
}

// passesHTTP is the control of a refusal: a plain request for the name itself.
func (s *sandbox) passesHTTP(name string, port uint16) {
	s.t.Helper()
	if got := s.says(name, port, get(name)); !strings.Contains(got, "200 OK") || !strings.Contains(got, "host="+name) {
		s.t.Errorf("GET for %s: %q", name, got)
	}
}

func TestC1Host(t *testing.T) {
	s := start(t, "a.example", "b.example", "far.example", "!no.example")
	w := s.web("a.example", 80)
	s.dns.at("b.example", w.at.Addr())
	s.dns.at("no.example", w.at.Addr())
	s.web("far.example", 80)
	for _, host := range []string{"a.example", "A.Example", "a.example:80", "a.example:", "b.example"} {
		if got := s.says("a.example", 80, get(host)); !strings.Contains(got, "200 OK") {
			t.Errorf("Host %s: %q", host, got)
		}
	}
	s.hasN(5, "close tcp a.example "+w.at.String()+" done -")
	for _, c := range []struct{ head, why, name string }{
		{"Host: denied.example\r\n", "host-denied", "denied.example"},
		{"Host: no.example\r\n", "deny-rule", "no.example"},
		{"Host: far.example\r\n", "host-mismatch", "far.example"},
		{"Host: a.example:81\r\n", "host-mismatch", "a.example"},
		{"Host: a.example:x\r\n", "http-malformed", "a.example"},
		{"Host: a.example@denied.example\r\n", "http-malformed", `a.example@denied.example`},
		{"Host: a.example.\r\n", "http-malformed", "a.example."},
		{"", "host-absent", "a.example"},
		{"Host: a.example\r\nHost: denied.example\r\n", "http-malformed", "a.example"},
		{"Host: 45.67.0.1\r\n", "host-mismatch", "45.67.0.1"},
		{"Host: [::1]:80\r\n", "host-mismatch", `[::1]`},
	} {
		closed := s.log.count("close tcp a.example " + w.at.String() + " " + c.why + " - up=0")
		got := s.says("a.example", 80, "GET / HTTP/1.1\r\n"+c.head+"\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403 Forbidden\r\n") || !strings.Contains(got, "X-Sb-Reason: "+c.why+"\r\n") {
			t.Errorf("%q: %q", c.head, got)
		}
		s.hasN(closed+1, "close tcp a.example "+w.at.String()+" "+c.why+" - up=0")
		if s.log.count("deny http "+c.name+" "+w.at.String()+" "+c.why) == 0 {
			t.Errorf("%q: no line denies %s for %s", c.head, c.name, c.why)
		}
	}
}

// TestB15HTTPOn443: what the bytes are decides, not the port.
func TestB15HTTPOn443(t *testing.T) {
	s := start(t, "a.example")
	w := s.web("a.example", 443)
	got := s.says("a.example", 443, get("denied.example"))
	if !strings.Contains(got, "X-Sb-Reason: host-denied") || !strings.Contains(got, "--allow denied.example\n") {
		t.Errorf("%q", got)
	}
	s.closedUnsaid(w, "a.example", "host-denied")
	s.passesHTTP("a.example", 443)
}

// TestC1SecondRequest: every request is judged. The first one's answer comes,
// then the refusal, then the end.
func TestC1SecondRequest(t *testing.T) {
	s := start(t, "a.example")
	w := s.web("a.example", 80)
	for _, pipelined := range []bool{false, true} {
		c := s.dial("a.example", 80)
		in := bufio.NewReader(c)
		second := "POST /two HTTP/1.1\r\nHost: denied.example\r\nContent-Length: 3\r\n\r\nabc"
		if pipelined {
			io.WriteString(c, get("a.example")+second)
		} else {
			io.WriteString(c, get("a.example"))
		}
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(r.Body); r.StatusCode != 200 || !strings.Contains(string(b), "host=a.example") {
			t.Errorf("first answer: %v %q", r.Status, b)
		}
		if !pipelined {
			io.WriteString(c, second)
		}
		if r, err = http.ReadResponse(in, nil); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != 403 || r.Header.Get("X-Sb-Reason") != "host-denied" {
			t.Errorf("second answer: %v %v", r.Status, r.Header)
		}
		io.Copy(io.Discard, r.Body)
		if n, err := in.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the refusal: %d bytes, %v", n, err)
		}
		c.Close()
	}
	line := s.hasN(2, "close tcp a.example "+w.at.String()+" host-denied - up="+num(len(get("a.example"))))
	if line.Word("down") == "0" {
		t.Errorf("the first answer is not counted: %s", line)
	}
	s.hasN(2, "allow tcp a.example "+w.at.String())
	s.hasNot("dial tcp a.example")
}

// Requests one after the other, and at once, for names that may be asked for.
func TestC1ManyRequests(t *testing.T) {
	s := start(t, "a.example", "b.example")
	w := s.web("a.example", 80)
	s.dns.at("b.example", w.at.Addr())
	chunked := "POST /c HTTP/1.1\r\nHost: b.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
	sized := "PUT /s HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello"
	absolute := "GET http://a.example/abs HTTP/1.1\r\nHost: a.example\r\n\r\n"
	all := get("a.example") + chunked + sized + absolute + get("b.example")
	got := s.says("a.example", 80, all)
	for _, want := range []string{"host=b.example path=/c body=13\n", "path=/s body=5\n", "path=/abs body=0\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the answers %q", want, got)
		}
	}
	if n := strings.Count(got, "200 OK"); n != 5 {
		t.Errorf("%d answers, want 5", n)
	}
	s.has("close tcp a.example " + w.at.String() + " done - up=" + num(len(all)))
}

// TestC2C3C4C5Refused: requests that are refused for their form.
func TestC2C3C4C5Refused(t *testing.T) {
	s := start(t, "a.example")
	w := s.web("a.example", 80)
	for _, c := range []struct{ bytes, why string }{
		{"CONNECT denied.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", "http-connect"},
		{"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", "http-connect"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http2-cleartext"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n", "http2-cleartext"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: something\r\n\r\n", "http-upgrade"},
		{"GET http://denied.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "http-malformed"},
		{"GET http://a.example@denied.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "http-malformed"},
		{"GET / HTTP/1.1\nHost: a.example\n\n", "http-malformed"},
		{"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", "http-malformed"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\n Continued: x\r\n\r\n", "http-malformed"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "http-framing"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "http-framing"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n", "http-framing"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", "http-too-long"},
		{"GET / HTTP/1.1\r\nHost: a.example\r\nX: y", "http-malformed"},
	} {
		before := s.log.count("close tcp a.example " + w.at.String() + " " + c.why + " - up=0")
		if got := s.says("a.example", 80, c.bytes); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "X-Sb-Reason: "+c.why+"\r\n") {
			t.Errorf("%.60q: %.200q, not %s", c.bytes, got, c.why)
		}
		s.hasN(before+1, "close tcp a.example "+w.at.String()+" "+c.why+" - up=0")
	}
	s.passesHTTP("a.example", 80)
}

// A body whose framing breaks ends the flow there; the reason is in its close.
func TestC3BrokenBody(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example")
	w := s.site("a.example", 80, drain)
	s.inexact = true // the server is cut off
	for i, c := range []string{"zz\r\nab\r\n", "3\r\nabcX\r\n", "3;ext=1\r\nabc\r\n0\r\n\r\n"} {
		conn := s.dial("a.example", 80)
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a.example:80\r\nTransfer-Encoding: chunked\r\n\r\n"+c+get("denied.example"))
		readAll(conn)
		conn.Close()
		s.hasN(int64(i+1), "close tcp a.example "+w.at.String()+" http-framing -")
	}
	s.hasN(3, "deny http a.example "+w.at.String()+" http-framing -")
	ok := s.says("a.example", 80, "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	if ok != "" {
		t.Errorf("%q", ok)
	}
	s.has("close tcp a.example " + w.at.String() + " done -")
}

// upgrader answers an upgrade as it is told to, and then echoes.
func upgrader(answer string) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.WriteString(c, answer)
		if r.Header.Get("Upgrade") == "" || !strings.Contains(answer, " 101 ") {
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(r.Host), r.Host)
			}
		}
		io.Copy(c, in)
	}
}

const wsRequest = "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// TestC6Upgrade: after a 101 everything passes; without one it stays HTTP.
func TestC6Upgrade(t *testing.T) {
	s := start(t, "a.example")
	long := "X-Long: " + strings.Repeat("x", 9000) + "\r\n"
	w := s.site("a.example", 80, upgrader("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"+long+"\r\n\x81\x02hi"))
	c := s.dial("a.example", 80)
	io.WriteString(c, wsRequest)
	in := bufio.NewReader(c)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for line := ""; line != "\x81\x02hi"; {
		b, err := in.ReadByte()
		if err != nil {
			t.Fatalf("the answer to the upgrade: %q, %v", line, err)
		}
		if line += string([]byte{b}); b == '\n' {
			line = ""
		}
	}
	frames := "GET / HTTP/1.1\r\nHost: denied.example\r\n\r\n\x00\x01\x02" // what passes is anybody's business now
	io.WriteString(c, frames)
	c.CloseWrite()
	if b, _ := io.ReadAll(in); string(b) != frames {
		t.Errorf("through the websocket: %q", b)
	}
	s.has("close tcp a.example " + w.at.String() + " done - up=" + num(len(wsRequest)+len(frames)))

	plain := s.site("a.example", 81, upgrader("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"+long+"\r\nno"))
	got := s.says("a.example", 81, wsRequest)
	if !strings.HasSuffix(got, "\r\n\r\nno") {
		t.Errorf("without a 101: %q", got)
	}
	s.has("close tcp a.example " + plain.at.String() + " done -")
	c = s.dial("a.example", 81)
	io.WriteString(c, wsRequest)
	in = bufio.NewReader(c)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != 200 {
		t.Fatalf("%v, %v", r, err)
	} else {
		io.ReadAll(r.Body)
	}
	io.WriteString(c, get("a.example"))
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != 200 {
		t.Fatalf("the next request: %v, %v", r, err)
	} else {
		io.ReadAll(r.Body)
	}
	io.WriteString(c, get("denied.example"))
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != 403 {
		t.Errorf("a denied request after a refused upgrade: %v, %v", r, err)
	}
	s.has("close tcp a.example " + plain.at.String() + " host-denied -")
}

// TestC6Pipelined: what comes in one go with an upgrade is refused, also where it
// ends a byte behind a full buffer; so is an upgrade after another request.
func TestC6Pipelined(t *testing.T) {
	s := start(t, "mtu=9000", "a.example") // a segment holds all of it
	w := s.site("a.example", 80, func(c net.Conn) {
		readHead(c)
		drain(c)
	})
	s.inexact = true // the server is cut off
	pad := func(n int) string {
		return strings.Replace(wsRequest, "\r\n\r\n", "\r\nX: "+strings.Repeat("x", n-len(wsRequest)-len("X: \r\n"))+"\r\n\r\n", 1)
	}
	for i, head := range []string{wsRequest, pad(4096)} {
		c := s.dial("a.example", 80)
		io.WriteString(c, head[:1])
		time.Sleep(20 * time.Millisecond) // so that the next read is of its own
		io.WriteString(c, head[1:]+get("denied.example"))
		if got := readAll(c); got != "" {
			t.Errorf("%q", got)
		}
		c.Close()
		line := s.hasN(int64(i+1), "close tcp a.example "+w.at.String()+" http-upgrade -")
		if line.Word("up") != num(len(head)) {
			t.Errorf("%d bytes of head: %s", len(head), line)
		}
	}
	second := s.web("a.example", 81)
	got := s.says("a.example", 81, get("a.example")+wsRequest)
	if !strings.Contains(got, "200 OK") || !strings.Contains(got, "X-Sb-Reason: http-upgrade") {
		t.Errorf("an upgrade as the second request: %q", got)
	}
	s.has("close tcp a.example " + second.at.String() + " http-upgrade - up=" + num(len(get("a.example"))))
}

func readHead(c net.Conn) {
	in := bufio.NewReaderSize(c, 1)
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			return
		}
	}
}

// A server that goes on speaking after it was told that no more requests come
// does not hold the refusal up for ever.
func TestC1SlowServer(t *testing.T) {
	t.Parallel()
	s := start(t, "a.example")
	w := s.site("a.example", 80, func(c net.Conn) {
		readHead(c)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
		drain(c)
		time.Sleep(lingerTime + 2*time.Second)
	})
	began := time.Now()
	got := s.says("a.example", 80, get("a.example")+get("denied.example"))
	if took := time.Since(began); took < lingerTime-time.Second || took > lingerTime+time.Second {
		t.Errorf("the end came after %v", took)
	}
	if strings.Contains(got, "403") {
		t.Errorf("a refusal in the middle of an answer: %q", got)
	}
	s.has("close tcp a.example " + w.at.String() + " host-denied - up=" + num(len(get("a.example"))))
	s.has("deny http denied.example " + w.at.String() + " host-denied -")
}

// An address rule wants that very address as the Host.
func TestLiteralHTTP(t *testing.T) {
	s := start(t)
	w := s.web("", 80)
	s.rules(1, w.at.Addr().String(), "b.example")
	s.dns.at("b.example", w.at.Addr())
	says := func(host string) string {
		c, err := s.guest.dial(w.at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, get(host))
		c.CloseWrite()
		return readAll(c)
	}
	for _, host := range []string{w.at.Addr().String(), w.at.String(), "b.example"} {
		if got := says(host); !strings.Contains(got, "200 OK") {
			t.Errorf("Host %s: %q", host, got)
		}
	}
	for host, why := range map[string]string{"45.67.200.1": "host-mismatch", "denied.example": "host-denied"} {
		if got := says(host); !strings.Contains(got, "X-Sb-Reason: "+why) {
			t.Errorf("Host %s: %q", host, got)
		}
	}
	other := s.web("", 80)
	s.refusedAt(other.at)
	s.has("deny tcp - " + other.at.String() + " unresolved-address -")
}
