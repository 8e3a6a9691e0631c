package reach

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuildFails: a build that fails is passed over where packages are nowhere to be
// had, and is a failure everywhere else.
func TestBuildFails(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	registry := httptest.NewServer(http.NotFoundHandler())
	t.Setenv("npm_config_registry", registry.URL)
	e := &Environments{bin: t.TempDir(), dir: t.TempDir(), env: os.Environ()}
	os.Mkdir(filepath.Join(e.dir, "work"), 0o700)
	sbRun := func(script string) {
		if err := os.WriteFile(filepath.Join(e.bin, "sb-run"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sbRun("echo 'sb-run: mine is built, in 3m4s' >&2")
	if took, err := e.Build("mine"); err != nil || took != "3m4s" {
		t.Errorf("a build: %q, %v", took, err)
	}
	sbRun("echo \"$*\" >&2")
	if took, err := e.Build("mine"); err != nil || took != "" {
		t.Errorf("one that was there: %q, %v", took, err)
	}
	sbRun("echo 'it broke' >&2; exit 7")
	if _, err := e.Build("mine"); err == nil || errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "it broke") {
		t.Errorf("one that breaks: %v", err)
	}
	registry.Close()
	if _, err := e.Build("mine"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("one without packages: %v", err)
	}
	if failed := e.BuildAll([]string{"a", "b", "c"}); len(failed) != 3 || !errors.Is(failed["b"], ErrUnreachable) {
		t.Errorf("three of them: %v", failed)
	}
}
