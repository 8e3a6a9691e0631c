package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// view is a request as a reader understood it.
type view struct{ method, uri, host, key, other, body string }

// nginx is a process of it that reads what it is sent, by HTTP/1 or by HTTP/2 without
// TLS, and passes on how it understood each request, the body with a length.
type nginx struct {
	dir string

	mu    sync.Mutex
	views []view
}

// Its reading is Debian's default; what it is given is bounded by the broker.
const nginxConfig = `daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/log;
events { worker_connections 256; }
http {
  access_log off; large_client_header_buffers 16 72k; client_header_buffer_size 72k; client_max_body_size 0; client_body_buffer_size 1m;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s;
  fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  server {
    listen unix:%[1]s/1; listen unix:%[1]s/2 http2;
    location / {
      rewrite ^ /fixed? break; proxy_method POST; proxy_pass http://unix:%[1]s/back; proxy_ignore_client_abort on; proxy_pass_request_headers off;
      proxy_set_header X-Method $request_method; proxy_set_header X-Uri $request_uri; proxy_set_header X-Host $http_host;
      proxy_set_header X-Key $http_x_api_key; proxy_set_header X-Other $http_x_other;
    }
  }
}
`

func startNginx(t testing.TB) *nginx {
	t.Helper()
	if _, err := exec.LookPath("nginx"); err != nil && runtime.GOOS != "linux" {
		t.Skip("SKIP: make deps installs nginx on Debian alone")
	}
	n := &nginx{dir: t.TempDir()}
	l, err := net.Listen("unix", filepath.Join(n.dir, "back"))
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: n}
	go back.Serve(l)
	config := filepath.Join(n.dir, "conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, n.dir), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `PATH=$PATH:/usr/sbin; exec nginx "$@"`, "nginx", "-c", config, "-e", filepath.Join(n.dir, "log"))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = dyingWithUs()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait(); back.Close() })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := n.dial("2"); err == nil {
			c.Close()
			return n
		} else if time.Now().After(end) {
			t.Fatalf("nginx does not listen (make deps installs it): %v", err)
		}
	}
}

func (n *nginx) dial(version string) (net.Conn, error) {
	c, err := net.Dial("unix", filepath.Join(n.dir, version))
	if err == nil {
		c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}

// ServeHTTP is told of a request.
func (n *nginx) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h := r.Header
	n.mu.Lock()
	defer n.mu.Unlock()
	n.views = append(n.views, view{h.Get("X-Method"), h.Get("X-Uri"), h.Get("X-Host"), h.Get("X-Key"), h.Get("X-Other"), string(body)})
	io.WriteString(w, "ok")
}

func (n *nginx) taken() []view {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.views
	n.views = nil
	return all
}

// reads is how it understands what is sent by HTTP/1, and how it answers: methods are
// those that the answers are to.
func (n *nginx) reads(t *testing.T, stream []byte, methods []string) (views []view, status []int) {
	t.Helper()
	c, err := n.dial("1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		c.Write(stream)
		c.(*net.UnixConn).CloseWrite()
	}()
	for in := bufio.NewReader(c); ; {
		method := "GET"
		if len(status) < len(methods) {
			method = methods[len(status)]
		}
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if os.IsTimeout(err) {
			t.Fatalf("nginx waits for more than %q", stream)
		}
		if err != nil {
			return n.taken(), status
		}
		if res.StatusCode == http.StatusContinue {
			continue
		}
		io.Copy(io.Discard, res.Body)
		status = append(status, res.StatusCode)
	}
}

// reads2 is reads of HTTP/2: it is asked until so many streams have been answered.
func (n *nginx) reads2(t *testing.T, stream []byte, streams int) (views []view, refused int) {
	t.Helper()
	c, err := n.dial("2")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go c.Write(stream)
	fr := http2.NewFramer(io.Discard, bufio.NewReader(c))
	for answered := 0; answered < streams; {
		f, err := fr.ReadFrame()
		if os.IsTimeout(err) {
			t.Fatalf("nginx answers %d of %d streams", answered, streams)
		}
		if err != nil {
			break
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if bytes.HasPrefix(f.HeaderBlockFragment(), []byte{0x8c}) || f.StreamEnded() && !bytes.HasPrefix(f.HeaderBlockFragment(), []byte{0x88}) {
				refused++ // :status 400
			}
			if f.StreamEnded() {
				answered++
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				answered++
			}
		case *http2.RSTStreamFrame:
			answered++
			refused++
		case *http2.GoAwayFrame: // it takes trailers for a fault of the connection
			return n.taken(), streams
		}
	}
	return n.taken(), refused
}
