package keep

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/sb-broker/authority"
)

// endpoint is where a sign-in is refreshed.
type endpoint struct {
	url    string
	client string // the client's own id, which is public
	form   func(t *tokens, client string) map[string]string
	via    *http.Transport        // nil: the system's
	roots  []string               // files of authorities that it is verified by, besides the system's
	log    func(audit.Line) error // what is dialled is told here
}

var (
	claudeEndpoint = endpoint{url: "https://platform.claude.com/v1/oauth/token", client: "9d1c250a-e61b-44d9-88ed-5944d1962f5e",
		form: func(t *tokens, client string) map[string]string {
			f := map[string]string{"grant_type": "refresh_token", "refresh_token": t.refresh, "client_id": client}
			if len(t.scopes) > 0 {
				f["scope"] = strings.Join(t.scopes, " ")
			}
			return f
		}}
	codexEndpoint = endpoint{url: "https://auth.openai.com/oauth/token", client: "app_EMoamEEZ73f0CkXaXp7hrann",
		form: func(t *tokens, client string) map[string]string {
			return map[string]string{"grant_type": "refresh_token", "refresh_token": t.refresh, "client_id": client}
		}}
)

// refreshed is the answer of a token server.
type refreshed struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	IDToken      string `json:"id_token"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
}

func (r refreshed) expires() time.Time {
	return time.Now().Add(time.Duration(r.ExpiresIn) * time.Second)
}

// maxAnswer bounds the answer of a token server, in bytes.
const maxAnswer = 256 << 10

// refresh asks for new tokens. The error holds nothing of what was sent or said,
// but for the code of the protocol (RFC 6749, section 5.2).
func (e endpoint) refresh(ctx context.Context, t *tokens) (r refreshed, err error) {
	body, err := json.Marshal(e.form(t, e.client))
	if err != nil {
		return r, err
	}
	defer clear(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	var open sync.WaitGroup
	defer open.Wait() // the line of its end is written before this is over
	client, err := e.httpClient(&open)
	if err != nil {
		return r, err
	}
	answer, err := client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return r, fmt.Errorf("ask %s for another: %w", req.URL.Host, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	defer clear(text)
	if err != nil {
		return r, fmt.Errorf("ask %s for another: %w", req.URL.Host, err)
	}
	if answer.StatusCode != http.StatusOK {
		return r, fmt.Errorf("%s answers %d%s", req.URL.Host, answer.StatusCode, protocolError(text))
	}
	if json.Unmarshal(text, &r) != nil || checkValue([]byte(r.AccessToken)) != nil || r.ExpiresIn < 0 {
		return r, fmt.Errorf("the answer of %s is not understood", req.URL.Host)
	}
	if r.ExpiresIn == 0 {
		r.ExpiresIn = 3600
	}
	return r, nil
}

// protocolError is the code of an error, if it has one of the protocol's form.
func protocolError(text []byte) string {
	var v struct{ Error any }
	if json.Unmarshal(text, &v) != nil {
		return ""
	}
	if code, ok := v.Error.(string); ok && len(code) < 64 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == "" {
		return " (" + code + ")"
	}
	return ""
}

// httpClient follows no redirect: what is sent is for one server. No proxy of the
// environment is asked: what is dialled is what the log says.
func (e endpoint) httpClient(open *sync.WaitGroup) (*http.Client, error) {
	via := &http.Transport{}
	if e.via != nil {
		via = e.via.Clone()
	}
	if len(e.roots) > 0 {
		pool, err := authority.Roots(e.roots)
		if err != nil {
			return nil, err
		}
		via.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	dial := via.DialContext
	if dial == nil {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			if runtime.GOOS != "linux" {
				e.tell(audit.Line{Verdict: audit.Allow, Gate: audit.Look, Name: host, Address: "system", Reason: reason.Done, Words: []audit.Word{{Key: "by", Value: "sb"}}})
			}
			return (&net.Dialer{Timeout: 10 * time.Second, Resolver: e.resolver(host)}).DialContext(ctx, network, address)
		}
	}
	via.Proxy, via.DisableKeepAlives, via.TLSHandshakeTimeout = nil, true, 10*time.Second
	via.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return e.dial(ctx, dial, address, open)
	}
	return &http.Client{Transport: via, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// dial opens a connection that is in the log, with its bytes.
func (e endpoint) dial(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), address string, open *sync.WaitGroup) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	line := audit.Line{Time: time.Now(), Gate: audit.TCP, Name: host, Words: []audit.Word{{Key: "by", Value: "sb"}}}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		line.Verdict, line.Reason = audit.Dial, reason.ConnectFailed
		e.tell(line)
		return nil, err
	}
	line.Verdict, line.Address, line.Reason = audit.Allow, conn.RemoteAddr().String(), reason.TokenRefresh
	if err := e.tell(line); err != nil {
		conn.Close()
		return nil, fmt.Errorf("write to the audit log: %w", err)
	}
	open.Add(1)
	return &counted{Conn: conn, e: e, line: line, began: time.Now(), ended: open.Done}, nil
}

func (e endpoint) tell(l audit.Line) error {
	if e.log == nil {
		return nil
	}
	l.Time = time.Now()
	return e.log(l)
}

// counted is a connection whose bytes are counted, for the line of its end.
type counted struct {
	net.Conn
	e        endpoint
	line     audit.Line
	began    time.Time
	up, down atomic.Int64
	closed   atomic.Bool
	ended    func() // nil: nobody waits
}

func (c *counted) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	c.down.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (n int, err error) {
	n, err = c.Conn.Write(p)
	c.up.Add(int64(n))
	return n, err
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		switch {
		case c.line.Gate == audit.TCP:
			c.line.Verdict, c.line.Reason = audit.Close, reason.Done
		case c.down.Load() > 0:
			c.line.Reason = reason.Done
		}
		c.line.Words = []audit.Word{audit.Int("up", c.up.Load()), audit.Int("down", c.down.Load()), audit.Int("ms", time.Since(c.began).Milliseconds()), {Key: "by", Value: "sb"}}
		c.e.tell(c.line)
		if c.ended != nil {
			c.ended()
		}
	}
	return err
}
