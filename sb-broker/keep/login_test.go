package keep

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sb/lib/audit"
)

// tokenServer stands in for a token server; its name is the real one's.
type tokenServer struct {
	*httptest.Server
	asked  atomic.Int64
	last   atomic.Pointer[map[string]string]
	answer func(w http.ResponseWriter, n int64)
	lines  struct {
		sync.Mutex
		all []string
	}
}

func newTokenServer(t *testing.T, answer func(w http.ResponseWriter, n int64)) *tokenServer {
	t.Helper()
	s := &tokenServer{answer: answer}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		text, _ := io.ReadAll(r.Body)
		json.Unmarshal(text, &body)
		body["method"], body["path"] = r.Method, r.URL.Path
		s.last.Store(&body)
		s.answer(w, s.asked.Add(1))
	}))
	t.Cleanup(s.Close)
	return s
}

// use sends what goes to the real server here.
func (s *tokenServer) use(e *endpoint) {
	e.via = s.Client().Transport.(*http.Transport).Clone()
	e.via.TLSClientConfig.ServerName = "example.com" // the certificate's name
	e.via.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}
	e.log = func(l audit.Line) error {
		s.lines.Lock()
		defer s.lines.Unlock()
		s.lines.all = append(s.lines.all, l.String())
		return nil
	}
}

func writeLogin(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// signedIn is a keeper for a user who is signed in with both clients, to expire then.
func signedIn(t *testing.T, expires time.Time) *keeper {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	t.Setenv("CODEX_HOME", "")
	k := testKeeper(t)
	k.logins = hostLogins(nil)
	writeLogin(t, home+"/.claude/.credentials.json", fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-old","refreshToken":"sk-ant-ort01-old","expiresAt":%d,"scopes":["user:inference","user:profile"],"subscriptionType":"max","new":{"x":1}},"other":[1]}`, expires.UnixMilli()))
	writeLogin(t, home+"/.codex/auth.json", fmt.Sprintf(`{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":"i","access_token":%q,"refresh_token":"r-old","account_id":"account-1"},"last_refresh":"2026-01-01T00:00:00Z"}`, testJWT(expires, "old")))
	return k
}

func testJWT(expires time.Time, id string) string {
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"jti":%q}`, expires.Unix(), id)) + ".s"
}

// TestLoginGood: a sign-in that is good is handed out, and nobody is asked. What
// `set` kept comes first.
func TestLoginGood(t *testing.T) {
	expires := time.Now().Add(time.Hour)
	k := signedIn(t, expires)
	server := newTokenServer(t, nil)
	for _, l := range k.logins {
		server.use(&l.at)
	}
	wantRead(t, k, "claude", "sk-ant-oat01-old")
	wantRead(t, k, "codex", testJWT(expires, "old"))
	wantRead(t, k, "codex-account", "account-1")
	if server.asked.Load() != 0 {
		t.Error("the token server was asked")
	}
	t.Setenv("KEEPER_TEST", "a-token-of-my-own")
	k.source(t, "claude", "env:KEEPER_TEST")
	wantRead(t, k, "claude", "a-token-of-my-own")
	os.Remove(k.logins["codex"].path)
	wantFault(t, k, "codex", "missing", "nobody is signed in")
	writeLogin(t, k.logins["codex"].path, `{"OPENAI_API_KEY":"sk-x","tokens":null}`)
	wantFault(t, k, "codex", "missing", "nobody is signed in")
	writeLogin(t, k.logins["codex"].path, `not JSON sesame`)
	wantFault(t, k, "codex", "failed", "its form is not understood")
}

// TestLoginRoots: the token server is verified by the authorities that the
// configuration names; without them, one of its own is not believed, and nothing is
// sent to it.
func TestLoginRoots(t *testing.T) {
	server := newTokenServer(t, func(w http.ResponseWriter, _ int64) {
		fmt.Fprint(w, `{"access_token":"sk-ant-oat01-new","expires_in":3600}`)
	})
	file := filepath.Join(t.TempDir(), "ca.pem")
	os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)
	for _, roots := range [][]string{nil, {file}, {file + ".missing"}} {
		k := signedIn(t, time.Now().Add(-time.Minute))
		l := k.logins["claude"]
		l.at.url, l.at.roots = "https://example.com/v1/oauth/token", roots // the certificate's name
		l.at.via = &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		}}
		switch {
		case roots == nil:
			wantFault(t, k, "claude", "expired", "certificate signed by unknown authority")
		case roots[0] != file:
			wantFault(t, k, "claude", "expired", "read certificate authorities (broker.roots or --roots): ")
		default:
			wantRead(t, k, "claude", "sk-ant-oat01-new")
		}
	}
	if n := server.asked.Load(); n != 1 {
		t.Errorf("it was asked %d times, want once", n)
	}
}

// TestLoginRefresh: one that has expired is refreshed once, whoever asks at the same
// time, as the client would, and is in the log; what else the client keeps stays.
func TestLoginRefresh(t *testing.T) {
	for _, name := range []string{"claude", "codex"} {
		t.Run(name, func(t *testing.T) {
			k := signedIn(t, time.Now().Add(-time.Minute))
			fresh := testJWT(time.Now().Add(time.Hour), "new")
			server := newTokenServer(t, func(w http.ResponseWriter, n int64) {
				fmt.Fprintf(w, `{"access_token":%q,"refresh_token":"next-%d","id_token":"i2","expires_in":3600}`, fresh, n)
			})
			l := k.logins[name]
			server.use(&l.at)
			var asking sync.WaitGroup
			for range 8 {
				asking.Go(func() { wantRead(t, k, name, fresh) })
			}
			asking.Wait()
			if n := server.asked.Load(); n != 1 {
				t.Errorf("the token server was asked %d times", n)
			}
			sent := *server.last.Load()
			want := map[string]string{"method": "POST", "grant_type": "refresh_token", "client_id": l.at.client}
			if name == "claude" {
				want["path"], want["refresh_token"], want["scope"] = "/v1/oauth/token", "sk-ant-ort01-old", "user:inference user:profile"
			} else {
				want["path"], want["refresh_token"] = "/oauth/token", "r-old"
			}
			for key, v := range want {
				if sent[key] != v {
					t.Errorf("%s: %q, want %q", key, sent[key], v)
				}
			}
			text, err := os.ReadFile(l.path)
			if err != nil {
				t.Fatal(err)
			}
			keeps := []string{`"subscriptionType":"max"`, `"new":{"x":1}`, `"other":[1]`, "next-1", fresh}
			if name == "codex" {
				keeps = []string{`"auth_mode": "chatgpt"`, `"OPENAI_API_KEY": null`, "account-1", `"id_token": "i2"`, "next-1", fresh}
			}
			for _, keep := range keeps {
				if !strings.Contains(string(text), keep) {
					t.Errorf("no %s in %s", keep, text)
				}
			}
			if st, _ := os.Stat(l.path); st.Mode().Perm() != 0o600 {
				t.Errorf("its mode is %o", st.Mode().Perm())
			}
			if _, err := os.Stat(l.lockDir); l.lockDir != "" && err == nil {
				t.Error("the client's lock is left")
			}
			if len(server.lines.all) != 2 || !strings.Contains(server.lines.all[0], " allow tcp ") || !strings.Contains(server.lines.all[0], " token-refresh - by=sb") ||
				!strings.Contains(server.lines.all[1], " close tcp ") || strings.Contains(server.lines.all[1], "up=0") {
				t.Errorf("log %q", server.lines.all)
			}
		})
	}
}

// TestLoginExpired: one that cannot be refreshed says so; the words of the server are
// not in the error. One that is still good for a little is handed out.
func TestLoginExpired(t *testing.T) {
	k := signedIn(t, time.Now().Add(-time.Hour))
	server := newTokenServer(t, func(w http.ResponseWriter, n int64) {
		w.WriteHeader(400)
		io.WriteString(w, `{"error":"invalid_grant","error_description":"sk-ant-ort01-old is no good"}`)
	})
	l := k.logins["claude"]
	server.use(&l.at)
	_, _, err := k.read(context.Background(), "claude")
	if codeOf(err) != "expired" || !strings.Contains(err.Error(), "has expired") || !strings.Contains(err.Error(), "platform.claude.com answers 400 (invalid_grant)") || strings.Contains(err.Error(), "ort01") {
		t.Errorf("%v", err)
	}
	text, _ := os.ReadFile(l.path)
	if !strings.Contains(string(text), "sk-ant-ort01-old") {
		t.Errorf("it is %s", text)
	}
	for _, answer := range []string{`{}`, `{"access_token":"two\nlines"}`, `nonsense`, `{"access_token":"` + strings.Repeat("x", maxAnswer) + `"}`} {
		server.answer = func(w http.ResponseWriter, n int64) { io.WriteString(w, answer) }
		wantFault(t, k, "claude", "expired", "is not understood")
	}
	server.answer = func(w http.ResponseWriter, n int64) { w.Header().Set("Location", server.URL); w.WriteHeader(307) }
	wantFault(t, k, "claude", "expired", "answers 307")
	server.Close()
	wantFault(t, k, "claude", "expired", "ask platform.claude.com for another")
	if last := server.lines.all[len(server.lines.all)-1]; !strings.Contains(last, " dial tcp platform.claude.com - connect-failed - by=sb") {
		t.Errorf("log: %s", last)
	}
	writeLogin(t, l.path, fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-late","refreshToken":"r","expiresAt":%d}}`, time.Now().Add(time.Minute).UnixMilli()))
	wantRead(t, k, "claude", "sk-ant-oat01-late")
}

// TestLoginClientRefreshes: while the client itself refreshes under its lock, the
// keeper waits, and takes what it finds then. A lock that was left behind holds
// nobody up.
func TestLoginClientRefreshes(t *testing.T) {
	k := signedIn(t, time.Now().Add(-time.Minute))
	l := k.logins["claude"]
	server := newTokenServer(t, func(w http.ResponseWriter, n int64) {
		io.WriteString(w, `{"access_token":"sk-ant-oat01-ours","expires_in":3600}`)
	})
	server.use(&l.at)
	if err := os.Mkdir(l.lockDir, 0o700); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(200 * time.Millisecond)
		os.WriteFile(l.path, fmt.Appendf(nil, `{"claudeAiOauth":{"accessToken":"sk-ant-oat01-theirs","refreshToken":"r","expiresAt":%d}}`, time.Now().Add(time.Hour).UnixMilli()), 0o600)
		os.Remove(l.lockDir)
	}()
	wantRead(t, k, "claude", "sk-ant-oat01-theirs")
	if server.asked.Load() != 0 {
		t.Error("the token server was asked")
	}
	writeLogin(t, l.path, fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-old","refreshToken":"r","expiresAt":%d}}`, time.Now().Add(-time.Hour).UnixMilli()))
	if err := os.Mkdir(l.lockDir, 0o700); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(l.lockDir, long, long); err != nil {
		t.Fatal(err)
	}
	wantRead(t, k, "claude", "sk-ant-oat01-ours")
}
