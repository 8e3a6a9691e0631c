package live

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sb/testscripts/model"
	"sb/testscripts/world"
)

// vendors stands in for the servers of the model vendors, by their names and over
// TLS by an authority of its own: for all tests together, each of whose clients has
// a credential that no other has.
type vendors struct {
	*model.Server
	roots string // the authority's file

	mu     sync.Mutex
	grants map[string]grant // by the token to refresh with, which is good once
}

// grant is what a token server answers.
type grant struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Seconds int    `json:"expires_in"`
}

var startVendors = sync.OnceValues(func() (*vendors, error) {
	config, ca, err := world.Certificates(world.VendorNames...)
	if err != nil {
		return nil, err
	}
	v := &vendors{Server: model.New(nil), roots: filepath.Join(world.Dir(), "vendors.pem"), grants: map[string]grant{}}
	if err := os.WriteFile(v.roots, ca, 0o644); err != nil {
		return nil, err
	}
	l, err := world.Listen(world.Vendors + ":443")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST platform.claude.com/v1/oauth/token", v.token)
	mux.HandleFunc("GET chatgpt.com/backend-api/wham/accounts/check", v.accounts)
	mux.Handle("/", v.Server)
	server := &http.Server{Handler: mux, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	go server.ServeTLS(l, "", "")
	return v, nil
})

func theVendors(t *testing.T) *vendors {
	t.Helper()
	v, err := startVendors()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// token is a token server (RFC 6749, section 6).
func (v *vendors) token(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Type    string `json:"grant_type"`
		Refresh string `json:"refresh_token"`
	}
	json.NewDecoder(r.Body).Decode(&asked)
	v.mu.Lock()
	g, ok := v.grants[asked.Refresh]
	delete(v.grants, asked.Refresh)
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !ok || asked.Type != "refresh_token" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, `{"error":"invalid_grant"}`)
		v.Note(r, http.StatusBadRequest)
		return
	}
	json.NewEncoder(w).Encode(g)
	v.Note(r, http.StatusOK)
}

// accounts says that there is the one that is asked for, as Codex wants it said.
func (v *vendors) accounts(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, `{"accounts":[{"id":%q,"workspace_backend_origin":"https://chatgpt.com","account_routing_override":"NO_CONSTRAINT"}]}`, r.Header.Get("ChatGPT-Account-ID"))
	v.Note(r, http.StatusOK)
}

// grant has the token server give new tokens for one, once.
func (v *vendors) grant(refresh string, g grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.grants[refresh] = g
}

// with are the requests that had this value in a header.
func (v *vendors) with(value string) (found []model.Request) {
	for _, q := range v.Seen() {
		for _, values := range q.Header {
			if strings.Contains(strings.Join(values, "\n"), value) {
				found = append(found, q)
				break
			}
		}
	}
	return found
}

// answers asks for a turn with that value in a header, past any sandbox.
func (v *vendors) answers(t *testing.T, url, header, value string) int {
	t.Helper()
	text, err := os.ReadFile(v.roots)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	via := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer via.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(header, value)
	answer, err := (&http.Client{Transport: via}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
