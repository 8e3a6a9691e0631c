package world

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// GitHost is a git server, with the repositories own/one.git and own/two.git, which
// lets in whoever presents GitToken as a password.
const (
	GitHost  = "git.example.org"
	GitToken = "canary-git-5Hn2Vx9TqLw8"
)

// gitServer is git's own, made when it is first asked.
var gitServer = sync.OnceValues(func() (*cgi.Handler, error) {
	root := filepath.Join(Dir(), "git")
	for _, repo := range []string{"own/one.git", "own/two.git"} {
		dir := filepath.Join(root, repo)
		if err := exec.Command("git", "init", "-q", "--bare", "-b", "main", dir).Run(); err != nil {
			return nil, err
		}
		if err := exec.Command("git", "-C", dir, "config", "http.receivepack", "true").Run(); err != nil {
			return nil, err
		}
	}
	out, err := exec.Command("git", "--exec-path").Output()
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=me"},
	}, err
})

// git answers for the git server's repositories.
func git(w http.ResponseWriter, r *http.Request) bool {
	if r.Host != GitHost || !strings.HasPrefix(r.URL.Path, "/own/") {
		return false
	}
	if _, password, _ := r.BasicAuth(); password != GitToken {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return true
	}
	h, err := gitServer()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return true
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20)) // net/http/cgi takes no chunks
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return true
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	h.ServeHTTP(w, r)
	return true
}
