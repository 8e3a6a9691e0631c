package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeignLayer: a layer with an address elsewhere is not fetched from there.
func TestForeignLayer(t *testing.T) {
	asked := 0
	content := gzipLayer(small(t, "a", "1"))
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Write(content.packed)
	}))
	defer elsewhere.Close()
	l, c := newLayout(t), &counter{}
	d, config := l.image("amd64", content)
	b, _ := os.ReadFile(l.blobFile(d["digest"].(string)))
	foreign := bytes.Replace(b, []byte(`"mediaType":"`+content.mediaType), []byte(`"urls":["`+elsewhere.URL+`/x"],"mediaType":"`+content.mediaType), 1)
	if bytes.Equal(b, foreign) {
		t.Fatal("the manifest was not changed")
	}
	d = l.blob(typeManifest, foreign)
	r := newRegistry(t, c.wrap)
	pushRaw(t, r, l, d, "image", "foreign")
	s := newStore(t)
	c.onGet(digestOf(content.packed), http.NotFound)
	if _, err := pulled(t, s, r.host+"/image:foreign", "linux/amd64"); err == nil || asked != 0 {
		t.Errorf("%v; the other server was asked %d times", err, asked)
	}
	c.calm()
	if got, err := pulled(t, s, r.host+"/image:foreign", "linux/amd64"); err != nil || got != config {
		t.Errorf("the control: %s, %v", got, err)
	}
}

// TestCredentials: Docker's configuration is used, and for its registry alone.
func TestCredentials(t *testing.T) {
	l, c := newLayout(t), &counter{}
	d, config := l.image("amd64", gzipLayer(small(t, "a", "1")))
	l.tag("x", d)
	r := newRegistry(t, c.wrap)
	r.push(l, d, "image:x")
	secret := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	c.answer = func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Authorization") == "Basic "+secret {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	s := newStore(t)
	if _, err := pulled(t, s, r.host+"/image:x", "linux/amd64"); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("without a password: %v", err)
	}
	if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte(`{"auths":{"`+r.host+`":{"auth":"`+secret+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := pulled(t, s, r.host+"/image:x", "linux/amd64"); err != nil || got != config {
		t.Errorf("with the password: %s, %v", got, err)
	}
}

// TestRealmElsewhere: a registry that sends the client to another host with its password.
func TestRealmElsewhere(t *testing.T) {
	var passwords []string
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		passwords = append(passwords, req.Header.Get("Authorization"))
		io.WriteString(w, `{"token":"t"}`)
	}))
	defer tokens.Close()
	l, c := newLayout(t), &counter{}
	d, config := l.image("amd64", gzipLayer(small(t, "a", "1")))
	l.tag("x", d)
	r := newRegistry(t, c.wrap)
	r.push(l, d, "image:x")
	secret := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte(`{"auths":{"`+r.host+`":{"auth":"`+secret+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	realm := ""
	c.answer = func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Authorization") == "Bearer t" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="s"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	// The same server under another name: localhost is not 127.0.0.1's owner.
	realm = strings.Replace(tokens.URL, "127.0.0.1", "localhost", 1) + "/token"
	s := newStore(t)
	if _, err := pulled(t, s, r.host+"/image:x", "linux/amd64"); err == nil || !strings.Contains(err.Error(), "another's") || len(passwords) != 0 {
		t.Errorf("%v; passwords sent: %d", err, len(passwords))
	}
	realm = "http://" + r.host + "/token"
	c.mu.Lock()
	inner := c.answer
	c.answer = func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/token" {
			passwords = append(passwords, req.Header.Get("Authorization"))
			io.WriteString(w, `{"token":"t"}`)
			return true
		}
		return inner(w, req)
	}
	c.mu.Unlock()
	if got, err := pulled(t, s, r.host+"/image:x", "linux/amd64"); err != nil || got != config || len(passwords) == 0 || passwords[0] != "Basic "+secret {
		t.Errorf("the control: %s, %v, %q", got, err, passwords)
	}
}

// TestInsecure: a certificate that nobody vouches for, with the flag and without.
func TestInsecure(t *testing.T) {
	l := newLayout(t)
	d, config := l.image("amd64", gzipLayer(small(t, "a", "1")))
	l.tag("x", d)
	r := newRegistry(t, nil)
	r.push(l, d, "image:x")
	tls := httptest.NewUnstartedServer(r.server.Config.Handler)
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	s := newStore(t)
	ref := strings.TrimPrefix(tls.URL, "https://") + "/image:x"
	if _, err := pulled(t, s, ref, "linux/amd64"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without --insecure: %v", err)
	}
	if out, stderr, code := result(t, "pull", "--insecure", "--platform=linux/amd64", ref); out != config+"\n" || code != 0 {
		t.Errorf("with --insecure: %q, %q, code %d", out, stderr, code)
	}
}

// roundTrip stands for the network: it notes what would go out.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		registry, url, auth string
		insecure, out       bool
	}{
		{"registry.example.com", "https://registry.example.com/v2/", "", false, true},
		{"registry.example.com", "http://registry.example.com/v2/", "", false, false},
		{"registry.example.com", "http://registry.example.com/v2/", "", true, true},
		{"10.0.0.5:5000", "http://10.0.0.5:5000/v2/", "", false, false},
		{"169.254.169.254", "http://169.254.169.254/v2/", "", false, false},
		{"box.local", "http://box.local/v2/", "", false, false},
		{"localhost:5000", "http://localhost:5000/v2/", "", false, true},
		{"127.0.0.1:5000", "http://127.0.0.1:5000/v2/", "", false, true},
		{"[::1]:5000", "http://[::1]:5000/v2/", "", false, true},
		{"registry.example.com", "https://auth.example.com/token", "Basic x", false, true},
		{"registry.example.com", "https://auth.example.org/token", "Basic x", false, false},
		{"registry.example.com", "https://auth.example.org/token", "", false, true},
		{"registry.example.com:5000", "https://registry.example.com:5001/token", "Basic x", false, true},
		{"me.github.io", "https://you.github.io/token", "Basic x", false, false},
		{"10.0.0.5", "https://10.0.0.6/token", "Basic x", false, false},
	} {
		sent := false
		g := &guard{roundTrip(func(*http.Request) (*http.Response, error) { sent = true; return nil, nil }), c.registry, c.insecure}
		req, err := http.NewRequestWithContext(context.Background(), "GET", c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.auth != "" {
			req.Header.Set("Authorization", c.auth)
		}
		if _, err := g.RoundTrip(req); sent != c.out || (err == nil) != c.out {
			t.Errorf("%s for %s (%q, insecure %v): sent %v, %v", c.url, c.registry, c.auth, c.insecure, sent, err)
		}
	}
}
