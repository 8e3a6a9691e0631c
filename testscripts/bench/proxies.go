package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"sb/lib/binding"
	"sb/lib/fd"
	"sb/lib/handover"
	"sb/lib/manifest"
)

const (
	boundName   = "api.example"
	placeholder = "sk-ant-holder-0123456789abcdef"
	realKey     = "sk-real-Zk3vQ8sLw0XyTn5RbJ7hUeAqGf"
)

// proxy is what stands between a client and the server: sb-broker, nginx or nothing.
type proxy struct {
	name  string
	pid   int // 0: nothing
	dial  func() (net.Conn, error)
	trust *x509.CertPool
	stop  func()
}

// client speaks one version of HTTP through it.
func (p *proxy) client(http2 bool) *http.Client {
	v := new(http.Protocols)
	v.SetHTTP1(!http2)
	v.SetHTTP2(http2)
	return &http.Client{Transport: &http.Transport{
		Protocols:          v,
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{RootCAs: p.trust},
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return p.dial() },
	}}
}

// cpu is the processor time that it has used, in seconds.
func (p *proxy) cpu() (seconds float64) {
	for _, q := range family(p.pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", q.pid))
		_, rest, _ := strings.Cut(string(text), ") ")
		var user, system float64
		if f := strings.Fields(rest); len(f) > 12 {
			fmt.Sscan(f[11], &user)
			fmt.Sscan(f[12], &system)
		}
		seconds += (user + system) / 100 // USER_HZ
	}
	return seconds
}

// resident is its memory in MB.
func (p *proxy) resident() (mb float64) {
	for _, q := range family(p.pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", q.pid))
		_, rest, _ := strings.Cut(string(text), "VmRSS:")
		var kb float64
		fmt.Sscan(rest, &kb)
		mb += kb / 1024
	}
	return mb
}

// newCertificate is server's and nginx's certificate, which is in dir too.
func newCertificate(dir string) (pair tls.Certificate, pool *x509.CertPool, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, nil, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{boundName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return pair, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair, nil, err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	pair, err = tls.X509KeyPair(public, private)
	return pair, pool, errors.Join(err, os.WriteFile(filepath.Join(dir, "cert.pem"), public, 0o600), os.WriteFile(filepath.Join(dir, "key.pem"), private, 0o600))
}

// startNginx ends TLS and begins it again towards the server, as the broker does. By
// HTTP/2 it speaks HTTP/1.1 to the server: it knows no other there.
func startNginx(dir, server string, trust *x509.CertPool) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a port that is free
	if err != nil {
		return nil, err
	}
	at := l.Addr().String()
	l.Close()
	config := fmt.Sprintf(`daemon off; pid %[1]s/nginx.pid; error_log %[1]s/nginx.log; worker_processes 1; worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
  access_log off; client_max_body_size 0; keepalive_requests 1000000; http2_max_concurrent_streams 200; proxy_temp_path %[1]s; client_body_temp_path %[1]s;
  upstream far { server %[2]s; keepalive 256; keepalive_requests 1000000; }
  server {
    listen %[3]s ssl http2; ssl_certificate %[1]s/cert.pem; ssl_certificate_key %[1]s/key.pem; ssl_protocols TLSv1.3;
    location / {
      proxy_pass https://far; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host %[4]s;
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h;
      proxy_ssl_verify on; proxy_ssl_trusted_certificate %[1]s/cert.pem; proxy_ssl_server_name on; proxy_ssl_name %[4]s; proxy_ssl_protocols TLSv1.3;
    }
  }
}
`, dir, server, at, boundName)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("sh", "-c", `PATH=$PATH:/usr/sbin; exec nginx "$@"`, "nginx", "-c", filepath.Join(dir, "nginx.conf"), "-e", filepath.Join(dir, "nginx.log"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start nginx: %w", err)
	}
	p := &proxy{name: "nginx", pid: cmd.Process.Pid, trust: trust,
		dial: func() (net.Conn, error) { return net.Dial("tcp", at) },
		stop: func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }}
	for range 100 {
		if c, err := p.dial(); err == nil {
			return p, c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.stop()
	return nil, errors.New("nginx does not listen (make deps installs it)")
}

// startBroker runs sb-broker, and plays its gate and its keeper.
func startBroker(dir, server string) (*proxy, error) {
	m, err := manifest.Parse("bench", []byte("name = \"bench\"\n"))
	if err != nil {
		return nil, err
	}
	m.Credentials = []binding.Binding{{Secret: "key", Hosts: []string{boundName}, Header: "x-api-key", Format: "{}", Placeholder: placeholder}}
	text, err := m.Encode()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "sandbox.toml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	gates, wire, err := fd.Pair("broker", fd.Dgram)
	if err != nil {
		return nil, err
	}
	keepers, secrets, err := fd.Pair("secrets", fd.Stream)
	if err != nil {
		return nil, err
	}
	certificate, caOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ready, isReady, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(tool("sb-broker"), "--manifest", file, "--roots", filepath.Join(dir, "cert.pem"), "--broker=3", "--secrets=4", "--ca-out=5", "--ready=6")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{wire, secrets, caOut, isReady}, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	go keep(keepers)
	p := &proxy{name: "sb-broker", pid: cmd.Process.Pid, trust: x509.NewCertPool(), stop: func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }}
	if p.trust, err = readPool(certificate); err == nil {
		var line string
		if line, err = bufio.NewReader(ready).ReadString('\n'); err == nil && !strings.HasPrefix(line, "ready ") {
			err = fmt.Errorf("it says %q", line)
		}
		ready.Close()
	}
	var hands *handover.Wire
	if err == nil {
		hands, err = handover.New(gates)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("start sb-broker: %w", err)
	}
	go func() {
		for {
			if _, err := hands.Next(); err != nil {
				return
			}
		}
	}()
	p.dial = dialHanded(hands, server)
	return p, nil
}

// keep answers every question with the key.
func keep(wire *os.File) {
	defer wire.Close()
	for in := bufio.NewScanner(wire); in.Scan(); {
		fmt.Fprintf(wire, "value %d\n%s", len(realKey), realKey)
	}
}

func readPool(f *os.File) (*x509.CertPool, error) {
	defer f.Close()
	pool := x509.NewCertPool()
	var text strings.Builder
	if _, err := bufio.NewReader(f).WriteTo(&text); err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM([]byte(text.String())) {
		return nil, errors.New("it gave no certificate")
	}
	return pool, nil
}

// dialHanded opens a connection to the server and hands it over, as the gate does.
func dialHanded(wire *handover.Wire, server string) func() (net.Conn, error) {
	var last atomic.Uint64
	return func() (net.Conn, error) {
		up, err := net.Dial("tcp", server)
		if err != nil {
			return nil, err
		}
		defer up.Close()
		outer, err := up.(*net.TCPConn).File()
		if err != nil {
			return nil, err
		}
		defer outer.Close()
		near, far, err := fd.Pair("guest", fd.Stream)
		if err != nil {
			return nil, err
		}
		defer near.Close()
		defer far.Close()
		if err := wire.Hand(last.Add(1), boundName, netip.MustParseAddrPort("192.0.2.1:443"), int(far.Fd()), int(outer.Fd())); err != nil {
			return nil, err
		}
		return net.FileConn(near)
	}
}
