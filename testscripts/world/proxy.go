package world

import (
	"io"
	"log"
	"net"
	"net/http"
)

// ProxyPort is where proxy.example.org is a proxy that takes anybody anywhere.
const ProxyPort = "3128"

// proxy serves an open proxy: CONNECT, and requests for other hosts.
func (s *served) proxy(addr string) error {
	l, err := s.accepting(addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: http.HandlerFunc(relay), ErrorLog: log.New(io.Discard, "", 0)}
	go srv.Serve(l)
	return nil
}

func relay(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		tunnel(w, r.Host)
	case r.URL.Host == "":
		page(w, r)
	default:
		out, err := http.DefaultTransport.RoundTrip(&http.Request{Method: r.Method, URL: r.URL, Header: http.Header{}})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer out.Body.Close()
		w.WriteHeader(out.StatusCode)
		io.Copy(w, out.Body)
	}
}

func tunnel(w http.ResponseWriter, to string) {
	far, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		far.Close()
		return
	}
	io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { io.Copy(far, near); far.Close() }()
	io.Copy(near, far)
	near.Close()
}

// redirects sends a client to where the query of its request says.
func redirects(w http.ResponseWriter, r *http.Request) bool {
	to := r.URL.Query().Get("to")
	if to == "" {
		return false
	}
	http.Redirect(w, r, to, http.StatusFound)
	return true
}
