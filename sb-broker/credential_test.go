package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// echo sends back what it was asked, credentials and all.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Echo", r.Header.Get("X-Api-Key"))
	fmt.Fprintf(w, "%s %s %s key=%s body=%s", r.Method, r.Host, r.RequestURI, r.Header.Get("X-Api-Key"), body)
}

// TestCredential: where the guest presents the placeholder the server gets the
// secret, and what it sends back is the placeholder again. Without the
// placeholder, or with another, it gets none.
func TestCredential(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		c := w.client(http2)
		got := w.ask(c, request("POST", "/v1/messages?a=b", strings.NewReader("hello")))
		if key := w.hands.last(t).Header.Get("X-Api-Key"); key != secret {
			t.Errorf("the server got %q", key)
		}
		want := "POST api.example /v1/messages?a=b key=" + placeholder + " body=hello"
		if got.status != 200 || got.body != want || got.header.Get("X-Echo") != placeholder || (got.proto == 2) != http2 {
			t.Errorf("the guest got %+v, want %q", got, want)
		}
		w.has("note credential-used anthropic")
		w.has("note secret-echo -")
		for _, other := range []string{"", "sk-ant-holder-another-one-0000", placeholder + "x", "mine-" + secret[:8]} {
			r := request("GET", "/v1/models", nil)
			if r.Header.Set("X-Api-Key", other); other == "" {
				r.Header.Del("X-Api-Key")
			}
			if got := w.ask(c, r); got.status != 200 || !strings.Contains(got.body, "key="+other+" ") {
				t.Errorf("with %q: %+v", other, got)
			}
			if key := w.hands.last(t).Header.Get("X-Api-Key"); key != other {
				t.Errorf("with %q the server got %q", other, key)
			}
		}
	})
}
