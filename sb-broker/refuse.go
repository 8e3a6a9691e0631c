package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sb/lib/audit"
	"sb/lib/reason"
)

// refuse answers in the server's place.
func (f *flow) refuse(w http.ResponseWriter, r *http.Request, no refused) {
	f.say(audit.Deny, no.why, no.what)
	f.answerRefusal(w, r, no)
}

// statusOf is the status of a refusal.
func statusOf(why reason.Code) int {
	switch why {
	case reason.HostMisdirected:
		return http.StatusMisdirectedRequest
	case reason.HTTPMethod:
		return http.StatusMethodNotAllowed
	case reason.HTTPTooLong:
		return http.StatusRequestHeaderFieldsTooLarge
	case reason.UpstreamFailed, reason.MemoryBudget:
		return http.StatusServiceUnavailable // it can be asked again
	case reason.SecretUnavailable, reason.SecretUnusable, reason.EchoUnreadable:
		return http.StatusBadGateway
	}
	return http.StatusForbidden
}

// answerRefusal says why, in the form in which the client's programs show it: those
// of an API read a message in JSON. The next request of HTTP/1 would stand behind a
// body that nobody has read, so the client is told to make it elsewhere.
func (f *flow) answerRefusal(w http.ResponseWriter, r *http.Request, no refused) {
	if f.requests != nil && r.Body != nil && r.Body != http.NoBody {
		w.Header().Set("Connection", "close")
	}
	e, _ := reason.Explain(no.why)
	text := fmt.Sprintf("sb: refused: %s", no.why)
	if no.what != "" {
		text += fmt.Sprintf(" (%.200q)", no.what)
	}
	if no.why == reason.CredentialScope || no.why == reason.CredentialMint {
		// What the binding would have to name; the query is no part of that.
		path, _, _ := strings.Cut(r.RequestURI, "?")
		text += fmt.Sprintf(": %s %.200q", r.Method, path)
	}
	text = strings.TrimSpace(text + "\n" + e.What + "\n" + e.Fix)
	h := w.Header()
	h.Set("X-Sb-Reason", string(no.why))
	if strings.Contains(r.Header.Get("Accept")+r.Header.Get("Content-Type"), "json") {
		h.Set("Content-Type", "application/json; charset=utf-8")
		message := map[string]string{"type": "sb", "message": text}
		w.WriteHeader(statusOf(no.why))
		json.NewEncoder(w).Encode(map[string]any{"message": text, "error": message})
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(statusOf(no.why))
	io.WriteString(w, text+"\n")
}

// refusal is a refused answer as an error.
type refusal struct{ refused }

func (r refusal) Error() string { return string(r.why) }

// fail is called for a request that got no answer. The guest learns what it would
// of a server that ends the connection; it knows what can be asked again.
func (f *flow) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no refusal
	if errors.As(err, &no) {
		f.refuse(w, r, no.refused)
		return
	}
	f.mu.Lock()
	ended := f.ended
	f.mu.Unlock()
	switch {
	case ended == reason.HTTPFraming || ended == reason.HTTPMalformed: // of its body
		f.answerRefusal(w, r, refused{why: ended})
		return
	case ended == "" && r.Context().Err() == nil:
		f.say(audit.Note, reason.UpstreamFailed, "")
	}
	panic(http.ErrAbortHandler)
}
