package netns

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/tlstext"
	"sb/testscripts/world"
)

// TestB9EarlyData: OpenSSL resumes a session and sends early data with its hello,
// in clear of nothing but the name, and the gate lets it through as it is; with
// another name nothing of it goes out.
func TestB9EarlyData(t *testing.T) {
	server := startOpenSSL(t, "-tls1_3", "-early_data", "-no_anti_replay")
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	dir := l.dir
	early := filepath.Join(dir, "early")
	if err := os.WriteFile(early, bytes.Repeat([]byte("early "), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	session := filepath.Join(dir, "session")
	// speak runs a client until it has said something or stored its session, or is
	// cut off.
	speak := func(until string, args ...string) string {
		cmd := l.inCommand("timeout", append([]string{"15", "openssl", "s_client", "-connect", "allowed.example.org:4434", "-tls1_3"}, args...)...)
		said := &output{}
		cmd.Stdout, cmd.Stderr = said, said
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() { cmd.Wait(); close(over) }()
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-over:
				return said.read()
			case <-tick.C:
				stored, _ := os.ReadFile(session)
				if until != "" && strings.Contains(said.read(), until) || until == "" && bytes.Contains(stored, []byte("END SSL SESSION")) {
					in.Close()
				}
			}
		}
	}
	speak("", "-servername", "allowed.example.org", "-sess_out", session)
	if _, err := os.Stat(session); err != nil {
		t.Fatalf("no session: %v", err)
	}
	before := strings.Count(server.read(), "early early")
	if out := speak("Early data was", "-servername", "denied.example.org", "-sess_in", session, "-early_data", early); strings.Contains(out, "accepted") {
		t.Errorf("with another name: %s", out)
	}
	l.hasLine(t, `close tcp allowed\.example\.org 45\.67\.0\.10:4434 sni-denied`)
	if got := strings.Count(server.read(), "early early"); got != before {
		t.Errorf("the server got early data: %s", server.read())
	}
	if out := speak("Early data was", "-servername", "allowed.example.org", "-sess_in", session, "-early_data", early); !strings.Contains(out, "Early data was accepted") {
		t.Errorf("with the name: %s", out)
	}
	if !strings.Contains(server.read(), "early early") {
		t.Errorf("the server says %s", server.read())
	}
}

// TestB12OpenSSLRetries: OpenSSL asks for a second hello and takes one of any
// version; no other name gets to it in that.
func TestB12OpenSSLRetries(t *testing.T) {
	server := startOpenSSL(t, "-groups", "P-521", "-servername", "nobody.example")
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	for _, c := range []struct {
		what, name string
		major      byte
		passes     bool
	}{
		{"as it is asked for", "allowed.example.org", 3, true},
		{"another name", "denied.example.org", 3, false},
		{"another name and version", "denied.example.org", 4, false},
	} {
		conn, err := l.dialName("allowed.example.org", 4434)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		conn.Write(clientHello(t, "allowed.example.org", tls.X25519))
		if n, err := io.ReadAtLeast(conn, make([]byte, 4096), 43); err != nil {
			t.Errorf("%s: OpenSSL answers with %d bytes: %v", c.what, n, err)
		}
		second := clientHello(t, c.name, tls.CurveP521)
		second[9] = c.major
		conn.Write(append([]byte{20, 3, 3, 0, 1, 1}, second...))
		conn.(*net.TCPConn).CloseWrite()
		rest, _ := io.ReadAll(conn)
		if c.passes != (len(rest) > 500) {
			t.Errorf("%s: OpenSSL says %d bytes more:\n%s", c.what, len(rest), l.tail())
		}
	}
	l.hasLine(t, `close tcp allowed\.example\.org 45\.67\.0\.10:4434 hello-changed`)
	l.hasLine(t, `close tcp allowed\.example\.org 45\.67\.0\.10:4434 hello-malformed`)
	if said := server.read(); strings.Contains(said, "denied.example.org") {
		t.Errorf("it was told the other name: %s", said)
	}
}

// clientHello is a hello of TLS 1.3 with a share of that group.
func clientHello(t *testing.T, name string, group tls.CurveID) []byte {
	near, far := net.Pipe()
	go tls.Client(near, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{group, tls.CurveP521}}).Handshake()
	b := make([]byte, 4096)
	n, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	return b[:n]
}

// TestB7OpenSSLReads: what our parser takes a name from, OpenSSL's server takes
// the same one from, or none and no hello at all; each hello in one record, and
// one of them cut into two anywhere.
func TestB7OpenSSLReads(t *testing.T) {
	server := startOpenSSL(t, "-servername", "nobody.example")
	var all []hello
	for _, v := range hellos(t) {
		if v.reads != "" {
			all = append(all, v)
		}
	}
	plain := all[0].in
	for cut := 1; cut < len(plain)-5; cut++ {
		in, err := tlstext.Bytes(fmt.Sprintf("cut:%d{%x}", cut, plain[5:]))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, hello{what: fmt.Sprintf("B7 cut at %d", cut), in: in, reads: all[0].reads})
	}
	asked := regexp.MustCompile(`Hostname in TLS extension: "(.*)"`)
	names := 0
	for _, v := range all {
		from := len(server.read())
		c, err := net.Dial("tcp", world.CDN+":4434")
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.Write(v.in)
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
		said := ""
		for end := time.Now().Add(10 * time.Second); !strings.Contains(said, "CONNECTION CLOSED") && time.Now().Before(end); time.Sleep(time.Millisecond) {
			said = server.read()[from:]
		}
		m := asked.FindStringSubmatch(said)
		if m == nil {
			continue // it takes no name from it
		}
		names++
		if theirs := strings.ToLower(m[1]); theirs != v.reads && theirs != "host.docker.internal" {
			t.Errorf("%s: OpenSSL reads %q, we %q", v.what, m[1], v.reads)
		}
	}
	if names < 100 {
		t.Errorf("OpenSSL took a name from %d of %d hellos", names, len(all))
	}
}

// output is what a program has said so far.
type output struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Write(b)
}

func (o *output) read() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.String()
}

// startOpenSSL starts a server of it at the CDN's address, in the world.
func startOpenSSL(t *testing.T, options ...string) *output {
	t.Helper()
	dir := t.TempDir()
	key, cert := filepath.Join(dir, "key"), filepath.Join(dir, "cert")
	if out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-subj", "/CN=world", "-days", "1").CombinedOutput(); err != nil {
		t.Fatalf("openssl req: %v\n%s", err, out)
	}
	pid, err := world.ServersPID()
	if err != nil {
		t.Fatal(err)
	}
	o := &output{}
	args := []string{"--target", strconv.Itoa(pid), "--net", "stdbuf", "-oL", "openssl", "s_server", "-accept", world.CDN + ":4434", "-key", key, "-cert", cert, "-key2", key, "-cert2", cert}
	cmd := exec.Command("nsenter", append(args, options...)...)
	cmd.Stdout, cmd.Stderr = o, o
	in, err := cmd.StdinPipe() // it ends with its input
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(10 * time.Second); !regexp.MustCompile("ACCEPT").MatchString(o.read()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("openssl s_server is not ready: %s", o.read())
		}
	}
	return o
}
