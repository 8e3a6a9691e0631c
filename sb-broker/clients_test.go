package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// door is a port of this host at which the guest's programs reach the broker, and
// the file with the authority that they must trust.
func (w *world) door() (port, ca string) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			h := w.hand(apiName, w.addr())
			go func() {
				io.Copy(h, c)
				h.Conn.(*net.UnixConn).CloseWrite()
			}()
			go func() {
				io.Copy(c, h)
				c.Close()
			}()
		}
	}()
	w.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	ca = filepath.Join(w.t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, w.pem, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprint(w.port), ca
}

// TestE20Clients: clients of several makers take what the broker says, and what they
// send becomes what it should.
func TestE20Clients(t *testing.T) {
	for _, c := range []struct{ name, program string }{
		{"curl h2", `curl -sS --http2 --resolve $HOST:$PORT:127.0.0.1 --cacert $CA -H "x-api-key: $KEY" -d hello https://$HOST:$PORT/x`},
		{"curl h1", `curl -sS --http1.1 --resolve $HOST:$PORT:127.0.0.1 --cacert $CA -H "x-api-key: $KEY" -d hello https://$HOST:$PORT/x`},
		{"openssl", `printf 'POST /x HTTP/1.0\r\nHost: '$HOST:$PORT'\r\nx-api-key: '$KEY'\r\nContent-Length: 5\r\n\r\nhello' | openssl s_client -quiet -verify_return_error -CAfile $CA -servername $HOST -verify_hostname $HOST -connect 127.0.0.1:$PORT 2>/dev/null`},
		{"python3", `python3 -c '
import http.client, os, socket, ssl
e = os.environ
s = ssl.create_default_context(cafile=e["CA"]).wrap_socket(socket.create_connection(("127.0.0.1", int(e["PORT"]))), server_hostname=e["HOST"])
c = http.client.HTTPConnection(e["HOST"], int(e["PORT"])); c.sock = s
c.request("POST", "/x", b"hello", {"x-api-key": e["KEY"]})
print(c.getresponse().read().decode())'`},
		{"node", `NODE_EXTRA_CA_CERTS=$CA node -e '
const e = process.env
const r = require("https").request({host: "127.0.0.1", port: e.PORT, servername: e.HOST, method: "POST", path: "/x", headers: {host: e.HOST + ":" + e.PORT, "x-api-key": e.KEY}}, a => a.on("data", d => process.stdout.write(d)))
r.end("hello")'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(strings.Fields(c.name)[0]); err != nil {
				t.Skipf("SKIP %s is not here", c.name)
			}
			w := start(t, echo, anthropic())
			port, ca := w.door()
			cmd := exec.Command("timeout", "20", "sh", "-c", c.program)
			cmd.Env = append(os.Environ(), "HOST="+apiName, "PORT="+port, "CA="+ca, "KEY="+placeholder, "no_proxy=*")
			out, err := cmd.CombinedOutput()
			if want := "key=" + placeholder + " body=hello"; err != nil || !strings.Contains(string(out), want) {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := w.hands.last(t).Header.Get("X-Api-Key"); got != secret {
				t.Errorf("the server got %q", got)
			}
		})
	}
}

// TestGit: git clones, pushes and fetches with a placeholder for its token, a push of
// more than 1 MiB among them; another repository is refused in words that it shows.
func TestGit(t *testing.T) {
	backend := filepath.Join(strings.TrimSpace(output(t, "", "git", "--exec-path")), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("SKIP git-http-backend is not here")
	}
	root := t.TempDir()
	for _, repo := range []string{"own/one.git", "own/two.git"} {
		output(t, root, "git", "init", "-q", "--bare", "-b", "main", repo)
		output(t, filepath.Join(root, repo), "git", "config", "http.receivepack", "true")
	}
	h := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}}
	b := bearer()
	b.Secret, b.Format, b.Paths = "anthropic", "Basic x-access-token", []string{"/own/one.git"}
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		user, token, ok := r.BasicAuth()
		if !ok {
			rw.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		if user != "x-access-token" || token != secret {
			t.Errorf("the server got %s:%s", user, token)
		}
		body, _ := io.ReadAll(r.Body) // net/http/cgi takes no chunks
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		h.ServeHTTP(rw, r)
	}, b)
	port, ca := w.door()
	dir := t.TempDir()
	git := func(in string, args ...string) (string, error) {
		args = append([]string{"20", "git", "-c", "http.curloptResolve=" + apiName + ":" + port + ":127.0.0.1", "-c", "user.name=a", "-c", "user.email=a@b", "-C", in}, args...)
		cmd := exec.Command("timeout", args...)
		cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_SSL_CAINFO="+ca, "no_proxy=*", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	do := func(in string, args ...string) {
		t.Helper()
		if out, err := git(in, args...); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	url := "https://me:" + placeholder + "@" + apiName + ":" + port
	do(dir, "clone", "-q", url+"/own/one.git", "a")
	a := filepath.Join(dir, "a")
	f, err := os.Create(filepath.Join(a, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := os.Open("/dev/urandom"); err == nil {
		io.CopyN(f, r, 3<<20)
		r.Close()
	}
	f.Close()
	do(a, "add", "big")
	do(a, "commit", "-q", "-m", "big")
	// In chunks by HTTP/1.1 and with a length by HTTP/2: git before 2.44 asks itself for
	// more after the end of chunks if libcurl does, as it may by HTTP/2, and hangs.
	do(a, "-c", "http.version=HTTP/1.1", "push", "-q", "origin", "HEAD:main")
	do(a, "-c", "http.postBuffer=8388608", "push", "-q", "origin", "HEAD:other")
	do(dir, "clone", "-q", url+"/own/one.git", "b")
	do(filepath.Join(dir, "b"), "fetch", "-q")
	if output(t, a, "git", "rev-parse", "HEAD") != output(t, filepath.Join(dir, "b"), "git", "rev-parse", "HEAD") {
		t.Error("what was pushed is not what was cloned")
	}
	out, err := git(dir, "clone", url+"/own/two.git", "c")
	if err == nil || !strings.Contains(out, "credential-scope") {
		t.Errorf("another repository: %v\n%s", err, out)
	}
	w.has("deny credential-scope anthropic")
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}
