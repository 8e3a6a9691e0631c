package netns

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sb/lib/audit"
	"sb/lib/tlstext"
	"sb/testscripts/world"
)

// client is how a TLS client of the tests speaks to a name.
func client(t testing.TB, name string) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(world.Dir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{ServerName: name, RootCAs: pool}
}

// TestB4B5B7Hellos: the vectors of the hello's parser, each by a connection of its
// own through the built gate. What it takes goes out; of the rest nothing does.
func TestB4B5B7Hellos(t *testing.T) {
	all := hellos(t)
	m := manifest{allow: []string{"*.example.org", "*.example.com", "*.example"}}
	for i := range all {
		m.allow = append(m.allow, all[i].host)
	}
	l := newLab(t, m)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, v := range all {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			l.hello(t, v)
		})
	}
	wait.Wait()
	got := l.closes(t, len(all))
	for _, v := range all {
		if c, ok := got[v.host]; !ok || !slices.Contains(v.want, string(c.Reason)) {
			t.Errorf("%s: %s, want %s", v.what, c, v.want)
		} else if up := c.Word("up"); (up == "0") != v.refused {
			t.Errorf("%s: %s bytes went out: %s", v.what, up, c)
		}
	}
	if len(all) < 150 {
		t.Errorf("%d vectors", len(all))
	}
}

// hello is a vector: what is sent to a host of its own, and how the connection is
// to end.
type hello struct {
	what, host string
	in         []byte
	want       []string
	refused    bool
	reads      string // the name that the parser reads, "none" if nobody's; "" of a bad one
}

func hellos(t *testing.T) (all []hello) {
	f, err := os.Open("../../sb-gate/hello/testdata/hellos.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if in.Text() == "" || in.Text()[0] == '#' {
			continue
		}
		col := strings.SplitN(in.Text(), " |", 3)
		b, err := tlstext.Bytes(col[1])
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			continue // nothing to send
		}
		v := hello{what: col[0], host: fmt.Sprintf("v%d.example.org", len(all)), in: b, refused: true}
		switch want := strings.TrimSpace(col[2]); {
		case want == "none":
			v.want, v.reads = []string{"sni-absent"}, want
		case strings.HasPrefix(v.what, "B12"):
			v.want, v.refused = []string{"hello-changed"}, false // the first one went out
		case want == "a.example.com":
			v.want, v.refused, v.reads = []string{"done", "reset"}, false, want // the server may not like the rest of it
			if strings.HasSuffix(v.what, "that was not offered") {
				v.want = []string{"hello-changed"} // the rest of it is nothing that may follow
			}
		case strings.Contains(want, "."), want == "localhost":
			v.want, v.reads = []string{"sni-denied", "sni-mismatch"}, want // another name than the server's
		case want == "more":
			v.want = []string{"hello-malformed"} // it ends in the middle
		case b[0] != 22 || len(b) > 1 && b[1] != 3:
			v.want = []string{"not-identified", "http-malformed", "http-connect", "http-too-long"}
		default:
			v.want = []string{want}
		}
		all = append(all, v)
	}
	return all
}

// hello sends a vector and its end, and waits for the gate's.
func (l *lab) hello(t *testing.T, v hello) {
	c, err := l.dialName(v.host, 443)
	if err != nil {
		t.Errorf("%s: %v", v.what, err)
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(15 * time.Second))
	began := time.Now()
	c.Write(v.in)
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, c)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("%s: it took %v", v.what, took)
	}
}

// closes waits for that many close lines, and returns them by name.
func (l *lab) closes(t *testing.T, n int) map[string]audit.Line {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := map[string]audit.Line{}
		for _, x := range l.log() {
			if x.Verdict == audit.Close {
				got[x.Name] = x
			}
		}
		if len(got) >= n || time.Now().After(end) {
			return got
		}
	}
}

// TestB1LaxServer: crypto/tls skips a warning alert before a hello and serves the
// denied name behind it. Through the gate nobody gets there.
func TestB1LaxServer(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}})
	shake := func(dial func() (net.Conn, error), name string, before []byte) error {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(before); err != nil {
			return err
		}
		return tls.Client(c, client(t, name)).Handshake()
	}
	direct := func() (net.Conn, error) { return net.Dial("tcp", world.CDN+":443") }
	guest := func() (net.Conn, error) { return l.dialName("allowed.example.org", 443) }
	for _, alert := range [][]byte{{21, 3, 1, 0, 2, 1, 100}, {21, 3, 1, 0, 2, 1, 90}, {21, 3, 3, 0, 2, 1, 41}} {
		if err := shake(direct, "denied.example.org", alert); err != nil {
			t.Errorf("without a gate, behind alert %d: %v", alert[6], err)
		}
		if err := shake(guest, "denied.example.org", alert); err == nil {
			t.Errorf("through the gate, behind alert %d: it passed", alert[6])
		}
	}
	if err := shake(guest, "denied.example.org", nil); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("the denied name by itself: %v", err)
	}
	if err := shake(guest, "allowed.example.org", nil); err != nil {
		t.Errorf("the allowed name: %v", err)
	}
	l.hasLine(t, `close tcp allowed\.example\.org 45\.67\.0\.10:443 not-identified`)
}

// TestB2Encrypted: a client that hides the denied name behind the allowed one, and
// a server that finds it.
func TestB2Encrypted(t *testing.T) {
	for _, mode := range []string{"refuse", "auto"} {
		t.Run(mode, func(t *testing.T) { encrypted(t, mode) })
	}
}

func encrypted(t *testing.T, mode string) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org"}, ech: mode})
	ech, err := os.ReadFile(filepath.Join(world.Dir(), "ech"))
	if err != nil {
		t.Fatal(err)
	}
	hidden := client(t, "denied.example.org")
	hidden.EncryptedClientHelloConfigList = ech
	greeting := func(c net.Conn, err error, config *tls.Config) (string, error) {
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		return bufio.NewReader(tls.Client(c, config)).ReadString('\n')
	}
	c, err := net.Dial("tcp", world.CDN+":"+world.ECHPort)
	if got, err := greeting(c, err, hidden); got != "you asked for denied.example.org\n" {
		t.Errorf("without a gate: %q, %v", got, err)
	}
	port, _ := strconv.Atoi(world.ECHPort)
	before := time.Now()
	c, err = l.dialName("allowed.example.org", port)
	if got, err := greeting(c, err, hidden); err == nil {
		t.Errorf("through the gate: %q", got)
	}
	soon(t, "an encrypted hello", before)
	l.hasLine(t, `close tcp allowed\.example\.org 45\.67\.0\.10:4433 sni-encrypted`)
	c, err = l.dialName("allowed.example.org", port)
	if got, err := greeting(c, err, client(t, "allowed.example.org")); got != "you asked for allowed.example.org\n" {
		t.Errorf("the allowed name in clear: %q, %v", got, err)
	}
	// The guest has no way to learn the configuration either.
	if out, _ := l.in("dig", "+short", "allowed.example.org", "HTTPS"); strings.TrimSpace(out) != "" {
		t.Errorf("an HTTPS record: %s", out)
	}
}

// TestOpenSSL is its client, which sends what it is told to.
func TestOpenSSL(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "also.example.org", world.Other}, deny: []string{"gist.example.org"}})
	ca := filepath.Join(world.Dir(), "ca.pem")
	// The server answers HTTP, and the client's options must say which HTTP.
	dialled := "allowed.example.org:443"
	for _, c := range []struct {
		id, args, want string
		log            string
	}{
		{"B14 the name", dialled + " -servername allowed.example.org", "served GET /x host=h sni=allowed.example.org", "allow tcp allowed.example.org 45.67.0.10:443 allow-rule"},
		{"B14 another port", "allowed.example.org:8443 -servername allowed.example.org", "served GET /x host=h sni=allowed.example.org", "allow tcp allowed.example.org 45.67.0.10:8443 allow-rule"},
		{"B14 another port, another name", "allowed.example.org:8443 -servername denied.example.org", "", "close tcp allowed.example.org 45.67.0.10:8443 sni-denied"},
		{"R1 no name", dialled + " -noservername", "", "close tcp allowed.example.org 45.67.0.10:443 sni-absent"},
		{"B3 no name to an address", world.Other + ":443 -noservername", "served GET /x host=h sni= ", "allow tcp - 45.67.0.20:443 allow-rule"},
		{"B16 an allowed name of the same address", dialled + " -servername also.example.org", "served GET /x host=h sni=also.example.org", "allow tcp allowed.example.org 45.67.0.10:443 allow-rule"},
		{"B16 an allowed name of another address", world.Other + ":443 -servername allowed.example.org", "", "close tcp - 45.67.0.20:443 sni-mismatch"},
		{"A11 a denied name", dialled + " -servername gist.example.org", "", "close tcp allowed.example.org 45.67.0.10:443 deny-rule"},
		{"B5 upper case", dialled + " -servername ALLOWED.example.ORG", "served GET /x host=h sni=ALLOWED.example.ORG", "allow tcp allowed.example.org 45.67.0.10:443 allow-rule"},
		{"A16 a final dot", dialled + " -servername allowed.example.org.", "", "close tcp allowed.example.org 45.67.0.10:443 sni-malformed"},
		{"A4 an address for a name", dialled + " -servername 2130706433", "", "close tcp allowed.example.org 45.67.0.10:443 sni-malformed"},
		{"B5 a wildcard", dialled + " -servername *.example.org", "", "close tcp allowed.example.org 45.67.0.10:443 sni-malformed"},
		{"B12 a second hello that agrees", dialled + " -servername allowed.example.org -groups ffdhe2048:P-256", "served GET /x host=h sni=allowed.example.org", "allow tcp allowed.example.org 45.67.0.10:443 allow-rule"},
		{"B13 TLS 1.2, and again", dialled + " -servername allowed.example.org -tls1_2", "served GET /x host=h sni=allowed.example.org", "allow tcp allowed.example.org 45.67.0.10:443 allow-rule"},
		{"B7 records of 512 bytes", dialled + " -servername allowed.example.org -max_send_frag 512 -split_send_frag 512", "served GET /x host=h sni=allowed.example.org", "allow tcp allowed.example.org 45.67.0.10:443 allow-rule"},
		{"B18 another host within", dialled + " -servername allowed.example.org", "served GET /x host=h sni=allowed.example.org", "allow tcp allowed.example.org 45.67.0.10:443 allow-rule"},
	} {
		t.Run(c.id, func(t *testing.T) {
			args := append([]string{"s_client", "-quiet", "-ign_eof", "-alpn", "http/1.1", "-CAfile", ca, "-connect"}, strings.Fields(c.args)...)
			cmd := l.inCommand("timeout", append([]string{"15", "openssl"}, args...)...)
			cmd.Stdin = strings.NewReader(get("h"))
			out, _ := cmd.CombinedOutput()
			if got := string(out); c.want != "" && !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "served") {
				t.Errorf("openssl %s says %s, want %q", c.args, got, c.want)
			}
			l.hasLine(t, strings.ReplaceAll(c.log, ".", `\.`))
		})
	}
}

// TestB19OwnAddresses: names of one server have an address each in the guest, so
// that no client takes the connection of one for the other.
func TestB19OwnAddresses(t *testing.T) {
	l := newLab(t, manifest{allow: []string{"allowed.example.org", "also.example.org"}})
	a, _, err := l.lookup("allowed.example.org")
	b, _, err2 := l.lookup("also.example.org")
	if err != nil || err2 != nil || a == b || !a.IsValid() || !b.IsValid() {
		t.Fatalf("%v %v, %v %v", a, b, err, err2)
	}
	ca := filepath.Join(world.Dir(), "ca.pem")
	out, err := l.in("curl", "-sS", "--http2", "--max-time", "10", "--cacert", ca, "https://allowed.example.org/", "https://also.example.org/")
	if err != nil || strings.Count(out, "served") != 2 {
		t.Errorf("%s, %v", out, err)
	}
	for _, name := range []string{"allowed", "also"} {
		l.hasLine(t, `allow tcp `+name+`\.example\.org 45\.67\.0\.10:443 allow-rule`)
	}
}
