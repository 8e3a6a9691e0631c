package netns

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sb/testscripts/world"
)

// curl runs curl in the guest, which must be done within a second.
func (l *lab) curl(args ...string) (string, error) {
	l.t.Helper()
	began := time.Now()
	out, err := l.in("curl", append([]string{"-sS", "--max-time", "10", "--cacert", world.Dir() + "/ca.pem"}, args...)...)
	// Half of it may be the start of the program, on a machine that is busy.
	if took := time.Since(began); took > 2*quick {
		l.t.Errorf("curl %s: it took %v", strings.Join(args, " "), took)
	}
	return out, err
}

// TestC1C2C3C4C5Curl: what a client that everybody has can be made to send.
func TestC1C2C3C4C5Curl(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "second.example.org", world.Other + ":80"}, deny: []string{"never.example.org"}})
	const url = "http://allowed.example.org/x"
	big := l.file("big")
	if err := os.WriteFile(big, make([]byte, 2<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		args []string
		want string // in what is printed
	}{
		{"C1 a plain request", []string{url}, "served GET /x host=allowed.example.org"},
		{"C1 HTTP/1.0", []string{"--http1.0", url}, "served GET /x host=allowed.example.org"},
		{"C1 another allowed name there", []string{"-H", "Host: second.example.org", url}, "host=second.example.org"},
		{"C1 another name", []string{"-H", "Host: denied.example.org", url}, "refused: host-denied"},
		{"C1 a denied name", []string{"-H", "Host: never.example.org", url}, "refused: deny-rule"},
		{"C1 no name", []string{"-H", "Host:", url}, "refused: host-absent"},
		{"C1 an address", []string{"-H", "Host: " + world.CDN, url}, "refused: host-mismatch"},
		{"C1 two names", []string{"-H", "Host: allowed.example.org", "-H", "Host : denied.example.org", url}, "refused: http-malformed"},
		{"C1 the second request", []string{url, "--next", "-sS", "-H", "Host: denied.example.org", url}, "refused: host-denied"},
		{"C1 an allowed address", []string{"http://" + world.Other + "/"}, "host=" + world.Other},
		{"C1 a name on an allowed address", []string{"-H", "Host: denied.example.org", "http://" + world.Other + "/"}, "refused: host-denied"},
		{"C1 on the port of TLS", []string{"-H", "Host: denied.example.org", "http://allowed.example.org:443/"}, "refused: host-denied"},
		{"C2 the target is a URL of the host", []string{"--request-target", "http://allowed.example.org/abs", url}, "served GET /abs"},
		{"C2 the target is a URL of another", []string{"--request-target", "http://denied.example.org/", url}, "refused: http-malformed"},
		{"C3 an upload", []string{"-T", big, url}, "served PUT /x host=allowed.example.org sni= body=2097152"},
		{"C3 an upload in chunks that waits for 100", []string{"-T", big, "-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue", url}, "body=2097152"},
		{"C3 a length and chunks", []string{"-d", "x", "-H", "Transfer-Encoding: chunked", "-H", "Content-Length: 1", url}, "refused: http-framing"},
		{"C3 an expectation of something else", []string{"-d", "x", "-H", "Expect: the-worst", url}, "refused: http-framing"},
		{"C3 many fields", append(many("-H", "X: y", 201), url), "refused: http-too-long"},
		{"C3 a long field", []string{"-H", "X: " + strings.Repeat("x", 70_000), url}, "refused: http-too-long"},
		{"C4 HTTP/2 known before", []string{"--http2-prior-knowledge", url}, "curl: "},
		{"C4 HTTP/2 by upgrade", []string{"--http2", url}, "refused: http2-cleartext"},
		{"C4 HTTP/2 within TLS", []string{"--http2", "https://allowed.example.org/h2"}, "served GET /h2"},
		{"C5 CONNECT", []string{"-X", "CONNECT", url}, "refused: http-connect"},
		{"C6 an upgrade to something else", []string{"-H", "Connection: Upgrade", "-H", "Upgrade: foo", url}, "refused: http-upgrade"},
		{"C9 SOCKS", []string{"-x", "socks5h://allowed.example.org:80", "http://denied.example.org/"}, "curl: "},
		{"C9 SOCKS 4", []string{"-x", "socks4a://allowed.example.org:80", "http://denied.example.org/"}, "curl: "},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := *l
			l.t = t
			out, _ := l.curl(c.args...)
			if !strings.Contains(out, c.want) {
				t.Errorf("%.600s, want %q", out, c.want)
			}
			if strings.Contains(out, "host=denied") || strings.Contains(out, "host=never") {
				t.Errorf("a server served a request for another: %s", out)
			}
		})
	}
	l.logged("deny http allowed.example.org " + world.CDN + ":80 http2-cleartext")
	l.logged("deny tcp allowed.example.org " + world.CDN + ":80 not-identified")
}

func many(a, b string, n int) (all []string) {
	for range n {
		all = append(all, a, b)
	}
	return all
}

// TestC5OpenProxy: a host that is allowed is a proxy that takes anybody anywhere.
func TestC5OpenProxy(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"proxy.example.org", "allowed.example.org"}})
	proxy := "http://proxy.example.org:" + world.ProxyPort
	for _, to := range []string{"http://" + world.Never + "/p", "http://denied.example.org/p"} {
		outside, err := exec.Command("curl", "-sS", "--max-time", "10", "-x", "http://"+world.Other+":"+world.ProxyPort, to).CombinedOutput()
		if err != nil || !strings.Contains(string(outside), "served GET /p") {
			t.Errorf("the control, outside: %v: %s", err, outside)
		}
		tunnelled, err := exec.Command("curl", "-sS", "--max-time", "10", "-p", "-x", "http://"+world.Other+":"+world.ProxyPort, to).CombinedOutput()
		if err != nil || !strings.Contains(string(tunnelled), "served GET /p") {
			t.Errorf("the control, outside: %v: %s", err, tunnelled)
		}
		if out, _ := l.curl("-x", proxy, to); strings.Contains(out, "served") || !strings.Contains(out, "refused: http-malformed") && !strings.Contains(out, "refused: host-") {
			t.Errorf("%s: %s", to, out)
		}
		if out, err := l.curl("-p", "-x", proxy, to); strings.Contains(out, "served") || err == nil || !strings.Contains(out, "403") {
			t.Errorf("%s through a tunnel: %s", to, out)
		}
		if out, err := l.curl("-p", "-x", proxy, "https"+strings.TrimPrefix(to, "http")); strings.Contains(out, "served") || err == nil || !strings.Contains(out, "403") {
			t.Errorf("TLS to %s through a tunnel: %s", to, out)
		}
	}
	if out, err := l.curl(proxy + "/itself"); err != nil || !strings.Contains(out, "served GET /itself") {
		t.Errorf("the proxy's own page: %v: %s", err, out)
	}
	l.logged("deny http proxy.example.org " + world.Other + ":" + world.ProxyPort + " http-connect")
}

// TestC2Redirector: an allowed host sends the client elsewhere; where that is
// decides, not who sent it.
func TestC2Redirector(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "second.example.org"}})
	to := func(url string) (string, int) {
		out, err := l.curl("-L", "http://allowed.example.org/?to="+url)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return out, exit.ExitCode()
		}
		return out, 0
	}
	if out, _ := to("http://second.example.org/there"); !strings.Contains(out, "served GET /there host=second.example.org") {
		t.Errorf("to an allowed host: %s", out)
	}
	const noName, noConnection = 6, 7 // curl's words
	for url, want := range map[string]int{
		"http://denied.example.org/":              noName,
		"http://other.example.net/":               noName,
		"http://" + world.Never + "/":             noConnection,
		"http://" + world.Office + "/":            noConnection,
		"http://169.254.169.254/latest/meta-data": noConnection,
		"http://198.18.0.1/":                      noConnection,
		"http://" + world.HostAddr + ":22/":       noConnection,
	} {
		if out, code := to(url); code != want {
			t.Errorf("to %s: code %d, want %d: %s", url, code, want, out)
		}
	}
}

// TestHTTPVectors: the golden streams through the built gate: whoever is refused
// is told so, with the reason, within a second.
func TestHTTPVectors(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"a.example", "b.example"}})
	h := l.handle("a.example")
	n, unlike := 0, 0
	for _, col := range golden(t, "../../lib/http1/testdata/requests.txt") {
		stream, err := strconv.Unquote(col[3])
		if err != nil {
			t.Fatal(err)
		}
		what, result := col[0]+" "+col[1], col[2]
		if strings.Contains(result, "pass") || strings.HasPrefix(result, "break") {
			continue // the server's own answer comes then
		}
		n++
		began := time.Now()
		got := l.says(h+":80", stream)
		if took := time.Since(began); took > quick {
			t.Errorf("%s: it took %v", what, took)
		}
		code := strings.TrimPrefix(result, "refuse ")
		switch {
		case got == "": // not even taken for HTTP
			unlike++
		case !strings.HasPrefix(got, "HTTP/1.1 403 Forbidden\r\n") || !strings.Contains(got, "\r\nX-Sb-Reason: "+code+"\r\n"):
			t.Errorf("%s: %.200q, not a 403 for %s", what, got, code)
		}
	}
	if unlike > 15 {
		t.Errorf("%d of them were not taken for HTTP", unlike)
	}
	l.logsN(int64(unlike), "deny tcp a.example "+world.CDN+":80 not-identified")
	if n < 150 {
		t.Errorf("%d streams were tried", n)
	}
	if got := l.says(h+":80", "GET /x HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n"); !strings.Contains(got, "served GET /x host=b.example") {
		t.Errorf("the control: %q", got)
	}
	l.logsN(1, "allow tcp") // the control's
}

// TestC8Banner: a server that speaks first is heard at once under a rule with its
// port, and not at all under a bare one, which ends at once.
func TestC8Banner(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"ssh.example.org:22", "allowed.example.org"}})
	read := func(name string) (string, time.Duration) {
		at := l.handle(name) + ":22"
		began := time.Now()
		c, err := l.dialFrom(0, at)
		if errors.Is(err, syscall.ECONNRESET) { // so quickly that connect sees it
			return "", time.Since(began)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		b := make([]byte, 64)
		n, _ := c.Read(b)
		return string(b[:n]), time.Since(began)
	}
	if got, took := read("ssh.example.org"); got != "SSH-2.0-world\r\n" || took > quick {
		t.Errorf("with its port: %q after %v", got, took)
	}
	if got, took := read("allowed.example.org"); got != "" || took > quick {
		t.Errorf("bare: %q after %v", got, took)
	}
	l.logged("deny tcp allowed.example.org " + world.CDN + ":22 server-first")
}

// TestC7C9Protocols: what is neither TLS nor HTTP is cut off at once under a bare
// rule, whatever it is; a rule with an unusual port lets it through.
func TestC7C9Protocols(t *testing.T) {
	t.Parallel()
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "raw.example.org:80/raw"}})
	h, raw := l.handle("allowed.example.org"), l.handle("raw.example.org")
	for what, bytes := range map[string]string{
		"SSH": "SSH-2.0-x\r\n", "SMTP": "EHLO x\r\n", "FTP": "USER x\r\n", "Git": "0032git-upload-pack /x\x00host=x\x00", "PostgreSQL": "\x00\x00\x00\x08\x04\xd2\x16\x2f",
		"MySQL": "\x01\x00\x00\x01\x85", "Redis": "*1\r\n$4\r\nPING\r\n", "Redis in words": "PING\r\n", "memcached": "stats\r\n", "MQTT": "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", "AMQP": "AMQP\x00\x00\x09\x01",
		"DNS": "\x00\x1d\x00\x07\x01\x00\x00\x01", "LDAP": "\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00", "RDP": "\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00", "VNC": "RFB 003.008\n",
		"C9 SOCKS 5": "\x05\x01\x00", "C9 SOCKS 4": "\x04\x01\x00\x50\x2d\x43\x00\x1e\x00", "C9 STUN": "\x00\x01\x00\x00\x21\x12\xa4\x42transaction!", "C9 TURN": "\x00\x03\x00\x08\x21\x12\xa4\x42transaction!\x00\x19\x00\x04\x11\x00\x00\x00", "C9 a channel of TURN": "\x40\x00\x00\x04abcd",
		"BitTorrent": "\x13BitTorrent protocol", "Tor's guess": "\x00\x00\x07\x00\x06\x00\x03\x00\x04\x00\x05", "a shell": "\nid\n", "zeros": "\x00\x00\x00\x00", "XMPP": "<?xml version='1.0'?>", "RTSP": "\x24\x00\x00\x04", "WireGuard over TCP": "\x01\x00\x00\x00",
	} {
		began := time.Now()
		c, err := l.dialFrom(0, h+":80")
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(bytes))
		c.(*net.TCPConn).CloseWrite()
		b := make([]byte, 512)
		n, err := c.Read(b)
		got := string(b[:n])
		if n > 0 && !strings.HasPrefix(got, "HTTP/1.1 403 ") || n == 0 && err == nil {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if took := time.Since(began); took > quick {
			t.Errorf("%s: it took %v", what, took)
		}
		c.Close()
	}
	if n := l.logs("allow tcp allowed.example.org"); n != 0 {
		t.Errorf("%d of them were let out", n)
	}
	if got := l.says(raw+":80", "\x05\x01\x00\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("the control, under a rule that proves nothing, where the server answers: %q", got)
	}
}

// TestC10Publishers: a wildcard where anyone can publish is taken and warned
// about; one name there is nobody's business.
func TestC10Publishers(t *testing.T) {
	t.Parallel()
	check := func(rule, host string) string {
		out, err := exec.Command(filepath.Join(os.Getenv(binVar), "sb-policy"), "check", "--allow", rule, host).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", rule, err, out)
		}
		return string(out)
	}
	for _, suffix := range []string{"github.io", "s3.amazonaws.com", "blogspot.com", "herokuapp.com", "pages.dev"} {
		got := check("*."+suffix, "x."+suffix)
		if !strings.Contains(got, "allow x."+suffix) || !strings.Contains(got, "warning") {
			t.Errorf("*.%s: %s", suffix, got)
		}
		if got := check("x."+suffix, "x."+suffix); strings.Contains(got, "warning") {
			t.Errorf("x.%s: %s", suffix, got)
		}
	}
}
