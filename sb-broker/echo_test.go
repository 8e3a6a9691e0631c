package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// bare is a request that presents nothing.
func bare(method, path string, fields ...string) *http.Request {
	r := request(method, path, nil, fields...)
	r.Header.Del("X-Api-Key")
	return r
}

// TestE12Parts: a server that has kept a secret is not asked for parts of it, also
// by a request that gets none.
func TestE12Parts(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		var kept string
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Api-Key") != "" {
				kept = r.Header.Get("X-Api-Key")
				return
			}
			http.ServeContent(rw, r, "kept.txt", time.Time{}, strings.NewReader(kept))
		}, anthropic())
		c := w.client(http2)
		w.ask(c, request("POST", "/", nil))
		for _, part := range []string{"bytes=0-9", "bytes=10-"} {
			if got := w.ask(c, bare("GET", "/", "Range", part)); got.status != 200 || got.body != placeholder {
				t.Errorf("%s: %d, %q", part, got.status, got.body)
			}
		}
	})
}

// TestE12OtherRequests: what one request brought to a server may come back in the
// answer to another that had begun before there was anything to look for.
func TestE12OtherRequests(t *testing.T) {
	for _, encoding := range []string{"", "gzip"} {
		t.Run("as "+encoding, func(t *testing.T) {
			sent := make(chan string)
			w := start(t, func(rw http.ResponseWriter, r *http.Request) {
				if key := r.Header.Get("X-Api-Key"); key != "" {
					sent <- key
					return
				}
				if encoding != "" {
					rw.Header().Set("Content-Encoding", encoding)
				}
				rw.(http.Flusher).Flush()
				var to io.Writer = rw
				if key := <-sent; encoding == "" {
					io.WriteString(to, key)
				} else {
					z := gzip.NewWriter(rw)
					io.WriteString(z, key)
					z.Close()
				}
			}, anthropic())
			c := w.client(true)
			res, err := c.Do(bare("GET", "/events"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			w.ask(c, request("POST", "/", nil))
			body, err := io.ReadAll(res.Body)
			switch {
			case encoding == "" && (err != nil || string(body) != placeholder):
				t.Errorf("%q, %v", body, err)
			case encoding != "" && (err == nil || len(body) > 0):
				t.Errorf("%q passed, of which nobody knows what it is", body)
			}
			if encoding != "" {
				w.has("deny echo-unreadable " + encoding)
			}
		})
	}
}

// TestE12ManyValues: where every request gets another value, each is found in the
// answer to its own.
func TestE12ManyValues(t *testing.T) {
	begin := make(chan struct{})
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		<-begin
		io.WriteString(rw, r.Header.Get("X-Api-Key"))
	}, anthropic())
	c := w.client(true)
	got := make(chan string)
	const n = 5
	for i := range n {
		w.mu.Lock()
		w.secrets["anthropic"] = fmt.Sprintf("%s-%d", secret, i)
		w.mu.Unlock()
		go func() {
			res, err := c.Do(request("GET", "/", nil))
			if err != nil {
				got <- err.Error()
				return
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			got <- string(body)
		}()
		w.reached(i + 1)
	}
	close(begin)
	for range n {
		if text := <-got; text != placeholder {
			t.Errorf("an answer says %q", text)
		}
	}
}

// reached waits until the server has got so many requests.
func (w *world) reached(n int) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); len(w.hands.all()) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("the server has not got %d requests", n)
		}
	}
}

// TestE12Unsaid: an answer that should be text and is compressed without saying so is
// refused where a secret could be in it; a file that is says so by its type.
func TestE12Unsaid(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		var kind string
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			io.WriteString(z, r.Header.Get("X-Api-Key"))
			z.Close()
			if rw.Header()["Content-Type"] = nil; kind != "" {
				rw.Header().Set("Content-Type", kind)
			}
			if r.URL.Path == "/slow" { // byte by byte, and of no length
				for _, b := range packed.Bytes() {
					rw.Write([]byte{b})
					rw.(http.Flusher).Flush()
				}
				return
			}
			rw.Header().Set("Content-Length", fmt.Sprint(packed.Len()))
			rw.Write(packed.Bytes())
		}, anthropic())
		c := w.client(http2)
		for _, kind = range []string{"", "text/plain; charset=utf-8", "application/json", "application/vnd.x+json"} {
			got := w.ask(c, request("GET", "/", nil))
			if got.status != 502 || got.header.Get("X-Sb-Reason") != "echo-unreadable" {
				t.Errorf("%q: %+v", kind, got)
			}
			res, err := c.Do(request("GET", "/slow", nil))
			if err == nil {
				var body []byte
				body, err = io.ReadAll(res.Body)
				if res.Body.Close(); err == nil || len(body) > 0 {
					t.Errorf("%q, in pieces: %q, %v", kind, body, err)
				}
			}
		}
		w.has(`deny echo-unreadable not-said`)
		for _, kind = range []string{"application/gzip", "application/octet-stream"} {
			if got := w.ask(c, request("GET", "/", nil)); got.status != 200 || !strings.HasPrefix(got.body, "\x1f\x8b") {
				t.Errorf("%q: %+v", kind, got)
			}
		}
	})
}

// TestE12AsText: text passes whatever it begins with, and as it comes.
func TestE12AsText(t *testing.T) {
	for _, text := range []string{"x", "x\n", "(", "\xfd", "x^2", "\x1f", "", "(\xb5/ a"} {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/plain")
			io.WriteString(rw, text)
			rw.(http.Flusher).Flush()
			io.WriteString(rw, ".")
		}, anthropic())
		if got := w.ask(w.client(false), request("GET", "/", nil)); got.status != 200 || got.body != text+"." {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestE12Names: a secret is no name of a field either.
func TestE12Names(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			name := "X-" + r.Header.Get("X-Api-Key")
			rw.Header().Set(name, "1")
			rw.Header().Set("Trailer", name+"-2, X-Other")
			io.WriteString(rw, "body")
			rw.Header().Set(name+"-2", "1")
			rw.Header().Set("X-Other", "2")
			rw.Header().Set(http.TrailerPrefix+name+"-3", "1")
		}, anthropic())
		res, err := w.client(http2).Do(request("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "body" {
			t.Errorf("%q, %v", body, err)
		}
		if all := strings.ToLower(fmt.Sprint(res.Header, res.Trailer)); strings.Contains(all, strings.ToLower(secret)) || res.Trailer.Get("X-Other") != "2" {
			t.Error(all)
		}
		w.has("note secret-echo -")
	})
}

// TestE12BasicForms: of a user and a password, what is sent is a text of its own,
// which a server may write in many ways.
func TestE12BasicForms(t *testing.T) {
	b := bearer()
	b.Format = "Basic x-token"
	var write func(string) string
	w := start(t, func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "it says "+write(r.Header.Get("Authorization"))+".")
	}, b)
	w.secrets["openai"] = "~~~???" + secret // its base64 has + and /
	c := w.client(false)
	pair := base64.StdEncoding.EncodeToString([]byte("x-token:" + placeholder))
	for name, f := range map[string]func(string) string{
		"as it is": func(s string) string { return s },
		"query":    url.QueryEscape,
		"slashes":  func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
		"html":     func(s string) string { return strings.ReplaceAll(s, "+", "&#43;") },
		"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"utf-16":   func(s string) string { return string(bytes.Join(bytes.Split([]byte(s), nil), []byte{0})) },
	} {
		write = f
		real := strings.TrimPrefix(f("Basic "+base64.StdEncoding.EncodeToString([]byte("x-token:"+w.secrets["openai"]))), "Basic ")
		r := request("GET", "/", nil, "Authorization", "Basic "+pair)
		if got := w.ask(c, r); got.status != 200 || strings.Contains(got.body, real[len(real)/2:len(real)-4]) {
			t.Errorf("%s: %q", name, got.body)
		}
	}
}

// TestE12Refusals: nor is it in what is said of an answer that is refused, to the
// guest or in the log.
func TestE12Refusals(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Encoding", r.Header.Get("X-Api-Key"))
			io.WriteString(rw, "body")
		}, anthropic())
		got := w.ask(w.client(http2), request("GET", "/", nil))
		if got.status != 502 || strings.Contains(got.body, secret) {
			t.Errorf("%+v", got)
		}
		w.has("deny echo-unreadable " + placeholder)
	})
}

// TestE12Asked: nothing that would make an answer unreadable is asked for, in
// whatever field a server is asked.
func TestE12Asked(t *testing.T) {
	w := start(t, echo, anthropic())
	for _, name := range []string{"Range", "If-Range", "Request-Range", "X-Ms-Range", "x_ms_range", "A-Im"} {
		w.passes(w.client(false), request("GET", "/", nil, name, "1"))
		if got := w.hands.last(t).Header; len(got[http.CanonicalHeaderKey(name)]) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, name := range []string{"Accept-Encoding", "Grpc-Accept-Encoding", "Connect-Accept-Encoding"} {
		w.passes(w.client(false), request("GET", "/", nil, name, "gzip"))
		if got := w.hands.last(t).Header[name]; len(got) != 1 || got[0] != "identity" {
			t.Errorf("%s: %v", name, got)
		}
	}
	w = start(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set(r.URL.Path[1:], "gzip")
		io.WriteString(rw, "body")
	}, anthropic())
	for _, name := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		if got := w.ask(w.client(false), request("GET", "/"+name, nil)); got.status != 502 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestE12Echo: wherever a server puts the secret into its answer, in whatever
// pieces, the guest gets the placeholder.
func TestE12Echo(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			text := "before " + r.Header.Get("X-Api-Key") + " after"
			var cut int
			fmt.Sscanf(r.URL.Query().Get("cut"), "%d", &cut)
			rw.WriteHeader(http.StatusUnauthorized)
			io.WriteString(rw, text[:cut])
			rw.(http.Flusher).Flush()
			io.WriteString(rw, text[cut:])
		}, anthropic())
		c := w.client(http2)
		for cut := range len("before " + secret + " after") {
			got := w.ask(c, request("GET", fmt.Sprintf("/?cut=%d", cut), nil))
			if got.body != "before "+placeholder+" after" || got.status != 401 {
				t.Fatalf("cut at %d: %+v", cut, got)
			}
		}
		w.has("note secret-echo -")
	})
}

// A long answer is looked through to its end, and a length that is no more true is
// not said.
func TestE12Long(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		const before = 200 << 10
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			text := strings.Repeat("x", before) + base64.StdEncoding.EncodeToString([]byte("key:"+r.Header.Get("X-Api-Key"))) + r.Header.Get("X-Api-Key")
			rw.Header().Set("Content-Length", fmt.Sprint(len(text)))
			io.WriteString(rw, text)
		}, anthropic())
		got := w.ask(w.client(http2), request("GET", "/", nil))
		if len(got.body) < before || !strings.HasSuffix(got.body, placeholder) || strings.Contains(got.body, base64.StdEncoding.EncodeToString([]byte("key:" + secret))[8:]) {
			t.Errorf("%d bytes, the last %q", len(got.body), got.body[max(0, len(got.body)-100):])
		}
	})
}

// TestE12Encodings: an answer is asked for as it is. One that is compressed all the
// same cannot be looked through, and is refused where a secret could be in it.
func TestE12Encodings(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("the server is asked for %q", got)
			}
			if r.Header.Get("Range")+r.Header.Get("If-Range") != "" && r.URL.Path == "/key" {
				t.Error("the server is asked for a part")
			}
			if r.URL.Path == "/plain" {
				rw.Header().Set("Content-Encoding", "identity")
				io.WriteString(rw, "plain")
				return
			}
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			io.WriteString(z, r.Header.Get("X-Api-Key"))
			z.Close()
			rw.Header().Set("Content-Encoding", "gzip")
			rw.Write(b.Bytes())
		}, anthropic())
		c := w.client(http2)
		none := request("GET", "/none", nil, "Accept-Encoding", "gzip", "Range", "bytes=0-1")
		none.Header.Del("X-Api-Key")
		if got := w.ask(c, none); got.status != 200 || got.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("with no secret sent: %+v", got)
		}
		got := w.ask(c, request("GET", "/key", nil, "Accept-Encoding", "gzip, br", "Range", "bytes=0-1", "If-Range", "x"))
		if got.status != 502 || got.header.Get("X-Sb-Reason") != "echo-unreadable" || got.header.Get("Content-Encoding") != "" {
			t.Errorf("%+v", got)
		}
		w.has("deny echo-unreadable gzip")
		if got := w.ask(c, request("GET", "/plain", nil)); got.body != "plain" {
			t.Errorf("%+v", got)
		}
	})
}
