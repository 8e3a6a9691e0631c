package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"sb/lib/binding"
)

// TestE24Requests: every vector of testdata/requests.txt: what a built-in binding is
// for, and what it leaves out.
func TestE24Requests(t *testing.T) {
	text, err := os.ReadFile("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	sites := map[string]map[string]*site{}
	n := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), " | ")
		if len(f) != 3 || line[0] == '#' {
			continue
		}
		n++
		word, result := f[0], f[2]
		if sites[word] == nil {
			found, err := binding.BuiltIn().Find(word, nil)
			for i := range found {
				found[i].Placeholder = placeholder
			}
			if err == nil {
				sites[word], err = newSites(found)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := judged(t, sites[word], f[1]); got != result {
			t.Errorf("%s, %s: %s, want %s", word, f[1], got, result)
		}
	}
	if n < 100 {
		t.Errorf("%d vectors", n)
	}
}

// judged is what becomes of a request with the placeholder in each header that a
// credential of its host is for.
func judged(t *testing.T, sites map[string]*site, what string) string {
	method, address, _ := strings.Cut(what, " ")
	host, path, _ := strings.Cut(strings.TrimPrefix(address, "https://"), "/")
	s := sites[host]
	if s == nil {
		t.Fatalf("%s: nothing is bound to %s", what, host)
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " /" + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, b := range s.bindings[:1] {
		r.Header.Set(b.Header, strings.Replace(b.Format, "{}", placeholder, 1))
		if user, ok := strings.CutPrefix(b.Format, "Basic "); ok {
			r.Header.Del(b.Header)
			r.SetBasicAuth(user, placeholder)
		}
	}
	p, no := s.judge(r, 443)
	switch {
	case no.why != "":
		return string(no.why)
	case len(p) == 1:
		return "yes"
	}
	return fmt.Sprint("no, ", len(p))
}

// TestE24Own: a binding of the user's own, without denied paths, is for every path.
func TestE24Own(t *testing.T) {
	b := anthropic()
	w := start(t, echo, b)
	w.passes(w.client(false), request("POST", "/user/keys", nil))
	b.DeniedPaths = []string{"/user/keys"}
	w = start(t, echo, b)
	w.refuses(w.client(false), request("POST", "/user/keys", nil), 403, "credential-mint")
	w.has("deny credential-mint anthropic")
	w.passes(w.client(false), request("POST", "/user", nil))
}

// TestE14MethodInForm: where a credential is for some methods, a request does not say
// in its query or its form that it is of another.
func TestE14MethodInForm(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		b := anthropic()
		b.Methods = []string{"GET", "POST"}
		w := start(t, echo, b)
		c := w.client(http2)
		form := func(kind, body string) *http.Request {
			r := request("POST", "/x", strings.NewReader(body))
			r.Header.Set("Content-Type", kind)
			return r
		}
		parts := func(name string) *http.Request {
			var body bytes.Buffer
			m := multipart.NewWriter(&body)
			m.WriteField(name, "DELETE")
			m.Close()
			return form(m.FormDataContentType(), body.String())
		}
		const plain = "application/x-www-form-urlencoded"
		for _, q := range []string{"?_method=DELETE", "?a=b&%5Fmethod=PUT", "?_METHOD=x", "?%255fmethod=x", "?x-http-method-override=PUT", "?x[_method]=PUT"} {
			w.refuses(c, request("POST", "/x"+q, nil), 403, "method-override")
			w.refuses(c, request("GET", "/x"+q, nil), 403, "method-override")
		}
		for _, body := range []string{"_method=DELETE", "a=b&_method=DELETE", "a=b&%5fmethod=DELETE", "a=b;_method=x", "X-HTTP-Method-Override=PUT", strings.Repeat("a", maxForm+1)} {
			w.refuses(c, form(plain, body), 403, "method-override")
		}
		w.refuses(c, form("Application/X-WWW-Form-Urlencoded; charset=utf-8", "_method=PUT"), 403, "method-override")
		for _, body := range []string{".method=DELETE", "a=b&%2emethod=DELETE", "a=b&+.method=DELETE"} { // as PHP reads them
			w.refuses(c, form(plain, body), 403, "method-override")
		}
		w.refuses(c, parts("_method"), 403, "method-override")
		w.refuses(c, parts(".method"), 403, "method-override")
		w.refuses(c, form("multipart/mixed; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"_meth\\od\"\r\n\r\nPUT\r\n--x--\r\n"), 403, "method-override")
		// What one reader takes for no form, another does.
		for _, kind := range []string{"", plain + "; a=1; a=2", plain + ", text/plain", plain + "; a", "form"} {
			w.refuses(c, form(kind, "_method=DELETE"), 403, "method-override")
		}
		two := form("text/plain", "_method=DELETE")
		two.Header.Add("Content-Type", plain)
		w.refuses(c, two, 403, "method-override")
		packed := form(plain, "packed")
		packed.Header.Set("Content-Encoding", "gzip")
		w.refuses(c, packed, 403, "method-override")
		// JSON, of which a server may take a member for the field of a form.
		for _, body := range []string{`{"_method":"DELETE"}`, `{"a":[{}],"b":"\"}","_METHOD":"x"}`, "{\"\\u005fmeth\\u006Fd\" : 1}", `{"\x5fmethod":1}`,
			`{"a":1}{"_method":"PUT"}`, `{/*"*/"_method":"PUT"/*"*/}`, `{'_method':'PUT'}`, `}{"_method":1}`, `{"x-http-method-override":"PUT"}`} {
			for _, kind := range []string{"application/json", "application/vnd.x+JSON; charset=utf-8"} {
				w.refuses(c, form(kind, body), 403, "method-override")
			}
		}
		packedJSON := form("application/json", "packed")
		packedJSON.Header.Set("Content-Encoding", "gzip")
		w.refuses(c, packedJSON, 403, "method-override")
		w.has("deny method-override json")
		// One that is long is cut off there.
		long := `{"a":"` + strings.Repeat("a", 1<<20) + `",`
		if got := w.passes(c, form("application/json", long+`"b":1}`)); !strings.HasSuffix(got.body, `"b":1}`) {
			t.Errorf("of a long one the server got %d bytes", len(got.body))
		}
		cut := start(t, echo, b) // a server of its own, which may hear of it late
		if res, err := cut.client(http2).Do(form("application/json", long+`"_method":"x"}`)); err == nil {
			got, _ := io.ReadAll(res.Body)
			if res.Body.Close(); strings.Contains(string(got), `"_method"`) {
				t.Error("the server got another method behind a long text")
			}
			// It is not for another request, of which it would be the end.
			if res.StatusCode != 403 || !http2 && !res.Close {
				t.Errorf("status %d, the connection stays: %v", res.StatusCode, !res.Close)
			}
		}
		w.has("deny method-override form")
		w.has("deny method-override query")
		// The controls: forms without it arrive whole, and JSON may say what it likes.
		for _, r := range []*http.Request{form(plain, "title="+url.QueryEscape("a method of mine %")), form(plain, "a=b.method"), form("", "hello"), form("application/json", `{"a":{"_method":"x"},"b":["_method"],"c":"a _method, \"_method\":1","d":1.5e+3}`), form("application/json", `["_method"]`), form("application/json", `"_method"`), form("application/octet-stream", strings.Repeat("_method=", maxForm)), parts("name"), request("POST", "/x?method=a", nil)} {
			want := ""
			if r.Body != nil && r.GetBody != nil {
				again, _ := r.GetBody()
				text, _ := io.ReadAll(again)
				want = string(text)
			}
			if got := w.passes(c, r); !strings.HasSuffix(got.body, "body="+want) {
				t.Errorf("the server got %q, want %q", got.body, want)
			}
		}
		// However often a method is named, it is one.
		b.Methods = slices.Repeat([]string{"POST"}, len(methods))
		w = start(t, echo, b)
		w.refuses(w.client(http2), form(plain, "_method=DELETE"), 403, "method-override")
		// Where every method is allowed there is nothing to get round.
		w = start(t, echo, anthropic())
		w.passes(w.client(http2), form(plain, "_method=DELETE"))
	})
}

// TestE14GraphQL: of a credential for one repository, a query about that arrives, as it
// was judged; another does not.
func TestE14GraphQL(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		found, err := binding.BuiltIn().Find("github:own/one", nil)
		if err != nil {
			t.Fatal(err)
		}
		found = slices.DeleteFunc(found, func(b binding.Binding) bool { return !slices.Contains(b.Hosts, "api.github.com") })
		for i := range found {
			found[i].Hosts, found[i].Placeholder = []string{apiName}, placeholder
		}
		w := start(t, echo, found...)
		w.secrets["github"] = secret
		c := w.client(http2)
		ask := func(body, kind string) *http.Request {
			r := request("POST", "/graphql", strings.NewReader(body), "Authorization", "token "+placeholder, "Content-Type", kind)
			r.Header.Del("X-Api-Key")
			return r
		}
		const good = `{"variables":{"o":"own"},"query":"query($o:String!){repository(owner:$o,name:\"one\"){issues(first:3){nodes{title}}}}"}`
		for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
			got := w.ask(c, ask(good, kind))
			if got.status != 200 || w.hands.last(t).Header.Get("Authorization") != "Bearer "+secret || !strings.Contains(got.body, `body={"query":"query ($o: String!) {`) || !strings.Contains(got.body, `"variables":{"o":"own"}}`) {
				t.Errorf("%s: %+v", kind, got)
			}
		}
		for _, r := range []*http.Request{
			ask(good, "text/plain"), ask(good, ""), ask("", "application/json"), ask(good+good, "application/json"), ask("["+good+"]", "application/json"),
			ask(strings.Replace(good, "own", "other", 1), "application/json"),
			ask(`{"query":"mutation{createIssue(input:{repositoryId:\"R\",title:\"t\"}){issue{url}}}"}`, "application/json"),
			ask(good+strings.Repeat(" ", 64<<10), "application/json"),
		} {
			w.refuses(c, r, 403, "graphql-scope")
		}
		w.has("deny graphql-scope a-mutation")
		// What gh shows of an error is a message in JSON.
		if got := w.ask(c, ask("{}", "application/json")); !strings.HasPrefix(got.body, `{"error":{"message":"sb: refused: graphql-scope`) || got.header.Get("Content-Type") != "application/json; charset=utf-8" {
			t.Errorf("a program that speaks JSON got %+v", got)
		}
		query := ask(good, "application/json")
		query.URL.RawQuery = "query={viewer{email}}"
		w.refuses(c, query, 403, "graphql-scope")
		packed := ask(good, "application/json")
		packed.Header.Set("Content-Encoding", "gzip")
		w.refuses(c, packed, 403, "graphql-scope")
	})
}
