package main

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"sb/lib/binding"
)

// TestE13Elsewhere: a placeholder is worth something to its own host, in its own
// header; elsewhere it passes as it is, and the log says so.
func TestE13Elsewhere(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		one, two := anthropic(), bearer()
		two.Hosts, two.Placeholder = []string{"api2.example"}, "sk-holder-of-two-fedcba9876"
		w := start(t, echo, one, two)
		w.set("openai", "sk-real-of-two-000000")
		c := w.client(http2)
		for _, swap := range []struct{ host, header, value string }{
			{"api2.example", "Authorization", "Bearer " + placeholder},
			{"api2.example", "X-Api-Key", placeholder},
			{"api.example", "X-Api-Key", two.Placeholder},
			{"api.example", "Authorization", "Bearer " + two.Placeholder},
			{"api.example", "Authorization", placeholder},
			{"api.example", "Cookie", "key=" + placeholder},
		} {
			r, _ := http.NewRequest("GET", "https://"+swap.host+"/?key="+placeholder, nil)
			r.Header.Set(swap.header, swap.value)
			w.ask(c, r)
			got := w.hands.last(t)
			if got.Header.Get(swap.header) != swap.value || got.URL.Query().Get("key") != placeholder {
				t.Errorf("%v: the server got %v", swap, got.Header)
			}
			for name, v := range got.Header {
				if strings.Contains(v[0], secret) || strings.Contains(v[0], "sk-real-of-two") {
					t.Errorf("%v: the server got %s: %s", swap, name, v)
				}
			}
		}
		w.hasNot("note credential-used")
		w.has("note placeholder-elsewhere anthropic")
		w.has("note placeholder-elsewhere openai")
		w.passes(c, request("GET", "/", nil))
		r, _ := http.NewRequest("GET", "https://api2.example/", nil)
		r.Header.Set("Authorization", "Bearer "+two.Placeholder)
		w.ask(c, r)
		if got := w.hands.last(t).Header.Get("Authorization"); got != "Bearer sk-real-of-two-000000" {
			t.Errorf("the second host got %q", got)
		}
	})
}

// TestE13SameSecret: one secret may be bound to several hosts, in several headers: what
// is put in at one of them was shown where it belongs.
func TestE13SameSecret(t *testing.T) {
	one, two := anthropic(), anthropic()
	two.Hosts, two.Header, two.Format = []string{"api2.example", apiName}, "authorization", "Bearer {}"
	w := start(t, echo, one, two)
	w.passes(w.client(false), request("GET", "/", nil))
	w.has("note credential-used anthropic")
	w.hasNot("note placeholder-elsewhere")
	w.passes(w.client(false), request("GET", "/", nil, "Cookie", placeholder))
	w.has("note placeholder-elsewhere anthropic")
}

// A secret that goes to two hosts by two bindings, with one placeholder, is no
// stranger at either.
func TestE13TwoBindings(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		one, two := anthropic(), anthropic()
		two.Hosts = []string{"api2.example"}
		w := start(t, echo, one, two)
		c := w.client(http2)
		w.passes(c, request("GET", "/", nil))
		w.hasNot("note placeholder-elsewhere")
		r := request("GET", "/", nil)
		r.Header.Set("X-Api-Key", "mine "+placeholder+"2")
		w.ask(c, r)
		w.has("note placeholder-elsewhere anthropic")
	})
}

// TestFormats: a credential is written as its binding says, however its client
// wrote the placeholder.
func TestFormats(t *testing.T) {
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct{ format, sent, want string }{
		{"Bearer {}", "Bearer " + placeholder, "Bearer " + secret},
		{"Bearer {}", "bearer  " + placeholder, "Bearer " + secret},
		{"Bearer {}", "token " + placeholder, "Bearer " + secret},
		{"Bearer {}", placeholder, "Bearer " + secret},
		{"Bearer {}", basic("me:" + placeholder), "Bearer " + secret},
		{"Basic x-access-token", basic("me:" + placeholder), basic("x-access-token:" + secret)},
		{"Basic x-access-token", basic(placeholder + ":x-oauth-basic"), basic("x-access-token:" + secret)},
		{"Basic ", "token " + placeholder, basic(":" + secret)},
		{"token {}", "token " + placeholder, "token " + secret},
		{"Bearer {}", "Bearer x" + placeholder, "Bearer x" + placeholder},
		{"Bearer {}", basic("me:x" + placeholder), basic("me:x" + placeholder)},
	} {
		b := bearer()
		b.Format = c.format
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Echo", r.Header.Get("Authorization"))
		}, b)
		r := request("GET", "/", nil)
		r.Header.Del("X-Api-Key")
		r.Header.Set("Authorization", c.sent)
		got := w.ask(w.client(false), r)
		if sent := w.hands.last(t).Header.Get("Authorization"); sent != c.want {
			t.Errorf("%q, sent %q: the server got %q, want %q", c.format, c.sent, sent, c.want)
		}
		if echo := got.header.Get("X-Echo"); strings.Contains(echo, secret) || echo == c.want && c.want != c.sent {
			t.Errorf("%q, sent %q: the guest got %q", c.format, c.sent, echo)
		}
	}
}

// TestAlways: a binding may put its credential in unasked; only then is what the
// guest has there replaced.
func TestAlways(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		b := anthropic()
		b.Inject = "always"
		w := start(t, echo, b)
		for _, sent := range []string{"", "mine", placeholder} {
			r := request("GET", "/", nil)
			if r.Header.Set("X-Api-Key", sent); sent == "" {
				r.Header.Del("X-Api-Key")
			}
			w.passes(w.client(http2), r)
		}
	})
}

// scoped is a token for one repository, as an API, a git and an upload host take it.
func scoped() binding.Binding {
	b := bearer()
	b.Secret = "anthropic"
	b.Methods = []string{"GET", "POST"}
	b.Paths = []string{"/repos/own/one", "/own/one.git", "/upload/", "/projects/own%2Fone"}
	return b
}

// spelt has a request ask for a path as it stands.
func spelt(r *http.Request, path string) {
	if r.URL.Opaque = path; strings.HasPrefix(path, "//") {
		r.URL.Opaque = "//api.example" + path // HTTP/2 alone
	}
}

// TestE14Paths: a credential that is for some paths and methods goes to no other,
// and a path that could be read in two ways to none.
func TestE14Paths(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, scoped())
		c := w.client(http2)
		ask := func(method, path string) *http.Request {
			r := request(method, "/", nil)
			spelt(r, path)
			r.Header.Del("X-Api-Key")
			r.Header.Set("Authorization", "token "+placeholder)
			return r
		}
		for _, path := range []string{"/repos/own/one", "/repos/own/one/pulls?state=all", "/own/one.git/info/refs?service=git-upload-pack", "/upload/", "/upload/x/y", "/projects/own%2Fone", "/projects/own%2Fone/x%20y", "/own/one.git/caf%C3%A9"} {
			if got := w.ask(c, ask("GET", path)); got.status != 200 {
				t.Errorf("%s: %+v", path, got)
			}
			if got := w.hands.last(t); got.RequestURI != path || got.Header.Get("Authorization") != "Bearer "+secret {
				t.Errorf("%s: the server got %s %v", path, got.RequestURI, got.Header)
			}
		}
		for _, path := range []string{"/", "/repos/own/one-more", "/repos/own/onepulls", "/repos/own/two", "/Repos/own/one", "/upload", "/projects/own/one", "/own/one.git%2F..%2Ftwo", "/projects/own%2fone", "/graphql"} {
			w.refuses(c, ask("GET", path), 403, "credential-scope")
		}
		w.has("deny credential-scope anthropic")
		// What the binding would have to name is said.
		if got := w.ask(c, ask("GET", "/repos/own/two?q=1")); !strings.Contains(got.body, `("anthropic"): GET "/repos/own/two"`+"\n") {
			t.Errorf("it says %q", got.body)
		}
		w.refuses(c, ask("DELETE", "/repos/own/one"), 403, "credential-scope")
		for _, path := range []string{"/repos/own/one/../two", "/repos/own/one/%2e%2e/two", "/repos/own/one/%2E./two", "/repos/own/one/.%2e/two", "/repos/own/one//two", "//repos/own/one", "/repos/own/one/.", "/repos/own/one;x/y",
			"/repos/own/one/%5c..%5ctwo", "/repos/own/on%65", "/repos/own/one/%00", "/repos/own/one/%252e%252e/two", "/repos/own/one/%3b"} {
			if !http2 && path[:2] == "//" { // a client of HTTP/1 would take it for a host
				w.refusesRaw("GET "+path+" HTTP/1.1\r\nHost: api.example\r\nAuthorization: token "+placeholder+"\r\n\r\n", "http-path")
				continue
			}
			w.refuses(c, ask("GET", path), 403, "http-path")
		}
		if got := w.ask(c, ask("GET", "/repos/own/one")); got.status != 200 {
			t.Errorf("%+v", got)
		}
		// Without the placeholder there is nothing to keep.
		r := ask("GET", "/repos/own/two")
		r.Header.Del("Authorization")
		if got := w.ask(c, r); got.status != 200 || w.hands.last(t).Header.Get("Authorization") != "" {
			t.Errorf("%+v", got)
		}
	})
}

// Where no credential of a host is for some paths alone, its paths are its own.
func TestE14AnyPath(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		w := start(t, echo, anthropic())
		for _, path := range []string{"/v1//x", "/@a%2fb", "/x;y", "/%61"} {
			r := request("GET", "/", nil)
			spelt(r, path+"?q=a;b&%zz")
			w.passes(w.client(http2), r)
			if got := w.hands.last(t).RequestURI; got != path+"?q=a;b&%zz" {
				t.Errorf("%s: the server got %s", path, got)
			}
		}
	})
}

// TestE14Overrides: a credential is not used under another method or path than the
// ones that were judged.
func TestE14Overrides(t *testing.T) {
	w := start(t, echo, anthropic())
	for _, name := range overrides {
		for _, spelt := range []string{name, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"), strings.Replace(name, "-", "_", 1), strings.ReplaceAll(name, "-", "."), strings.ReplaceAll(name, "-", "!")} {
			r := request("POST", "/", strings.NewReader("body"), spelt, "DELETE")
			r.ContentLength, r.Trailer = -1, http.Header{spelt: {"DELETE"}}
			w.passes(w.client(false), r)
			for _, h := range []http.Header{w.hands.last(t).Header, w.hands.last(t).Trailer} {
				for got, values := range h {
					if fold(got) == name {
						t.Errorf("the server got %s: %s", got, values)
					}
				}
			}
		}
	}
}

// TestSeveral: several credentials of one host each have their paths.
func TestSeveral(t *testing.T) {
	one, two := bearer(), bearer()
	one.Secret, one.Paths, one.Placeholder = "one", []string{"/one"}, "holder-one-0123456789"
	two.Secret, two.Paths, two.Placeholder = "two", []string{"/two"}, "holder-two-0123456789"
	w := start(t, echo, one, two)
	w.set("one", "real-one-0123456789")
	w.set("two", "real-two-0123456789")
	for _, c := range []struct {
		path, sent, want string
		status           int
	}{
		{"/one", one.Placeholder, "real-one-0123456789", 200},
		{"/two", two.Placeholder, "real-two-0123456789", 200},
		{"/one", two.Placeholder, "", 403},
		{"/two", one.Placeholder, "", 403},
	} {
		r := request("GET", c.path, nil, "Authorization", "Bearer "+c.sent)
		r.Header.Del("X-Api-Key")
		before := len(w.hands.all())
		if got := w.ask(w.client(false), r); got.status != c.status {
			t.Errorf("%v: %+v", c, got)
		}
		if all := w.hands.all(); c.want == "" && len(all) != before || c.want != "" && all[len(all)-1].Header.Get("Authorization") != "Bearer "+c.want {
			t.Errorf("%v: the server got something else", c)
		}
	}
}

// TestBindings: a binding that could not be held to is refused at the start, by its
// number and name.
func TestBindings(t *testing.T) {
	if _, err := newSites([]binding.Binding{anthropic(), scoped()}); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*binding.Binding){
		"secret: ":      func(b *binding.Binding) { b.Secret = "a\nget b" },
		"header: ":      func(b *binding.Binding) { b.Header = "X Key" },
		"header: \"Ho":  func(b *binding.Binding) { b.Header = "Host" },
		"header: \"tr":  func(b *binding.Binding) { b.Header = "transfer_encoding" },
		"format: ":      func(b *binding.Binding) { b.Format = "Bearer" },
		"inject: ":      func(b *binding.Binding) { b.Inject = "yes" },
		"placeholder: ": func(b *binding.Binding) { b.Placeholder = "" },
		"hosts: ":       func(b *binding.Binding) { b.Hosts = nil },
		"hosts: name":   func(b *binding.Binding) { b.Hosts = []string{"*.example"} },
		"methods: ":     func(b *binding.Binding) { b.Methods = []string{"TRACE"} },
		"paths: ":       func(b *binding.Binding) { b.Paths = []string{"repos"} },
	} {
		b := anthropic()
		change(&b)
		if _, err := newSites([]binding.Binding{anthropic(), b}); err == nil || !strings.HasPrefix(err.Error(), "credential 2 (") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestE24SignIn: a sign-in makes no key for the guest to keep; what it is for goes on.
func TestE24SignIn(t *testing.T) {
	found, err := binding.BuiltIn().Find("claude", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i].Hosts, found[i].Placeholder = []string{apiName}, placeholder
	}
	w := start(t, echo, found...)
	w.secrets["claude"] = secret
	for path, code := range map[string]int{
		"/v1/messages": 200, "/v1/messages?beta=true": 200, "/api/oauth/profile": 200, "/api/claude_code/settings": 200,
		"/api/oauth/claude_cli/create_api_key": 403, "/v1/../api/oauth/claude_cli/create_api_key": 403, "//api/oauth/claude_cli/create_api_key": 403,
	} {
		r := request("POST", "/", nil, "Authorization", "Bearer "+placeholder)
		r.Header.Del("X-Api-Key")
		r.URL.Opaque = path
		if got := w.ask(w.client(false), r); got.status != code {
			t.Errorf("%s: %+v", path, got)
		}
	}
}
