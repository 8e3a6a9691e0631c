package world

import (
	"fmt"
	"net/http"
	"strings"
)

// indexes answers requests below /seen/NAME/ as what package managers ask does: an
// index of Python packages, one of crates, and a git repository over plain HTTP, each
// with one thing in it.
func indexes(w http.ResponseWriter, r *http.Request) bool {
	place := seenPlace(r)
	switch {
	case place == "":
		return false
	case strings.Contains(r.URL.Path, "/simple/"):
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!DOCTYPE html><html><body><a href="stand_in-1.0-py3-none-any.whl">stand_in-1.0-py3-none-any.whl</a></body></html>`)
	case strings.HasSuffix(r.URL.Path, "/config.json"):
		fmt.Fprintf(w, `{"dl": "https://%s/crates", "api": "https://%s"}`, place, place)
	case strings.HasSuffix(r.URL.Path, "/owners"):
		fmt.Fprint(w, `{"users": [{"id": 1, "login": "stand-in", "name": null}]}`)
	case strings.HasSuffix(r.URL.Path, "/info/refs"):
		fmt.Fprintf(w, "%040d\trefs/heads/main\n", 1)
	default:
		return false
	}
	return true
}

// seenPlace is the host and the first two elements of a path that begins with
// /seen/, under which the request is noted; "" for others.
func seenPlace(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.Path, "/seen/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return r.Host + "/seen/" + name
}

// noting keeps by which digest the server knows the last credential of each place.
func (s *served) noting(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if place := seenPlace(r); place != "" {
			s.mu.Lock()
			s.credentials[place] = Digest(r.Header.Get("Authorization"))
			s.mu.Unlock()
		}
		h(w, r)
	}
}
