package reach

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// managerTime bounds a sandbox: apt's lists are long for an emulated machine.
const managerTime = 10 * time.Minute

// environments are those of this machine, with claude's, in which package managers
// are tried; the test is skipped where there cannot be one.
func environments(t *testing.T) *Environments {
	t.Helper()
	bin := os.Getenv("SB_BIN")
	if bin == "" {
		t.Skip("SB_BIN does not say where the tools are (make test does)")
	}
	data, err := filepath.Abs("../../.cache/live")
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(context.Background(), bin, data)
	if err != nil {
		t.Fatal(err)
	}
	switch took, err := e.Build("claude"); {
	case errors.Is(err, ErrUnreachable):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	case took != "":
		t.Logf("the environment was built in %s", took)
	}
	return e
}

// needs skips a test of what this machine does not reach.
func needs(t *testing.T, what string, addresses []string) string {
	t.Helper()
	if len(addresses) == 0 || addresses[0] == "" {
		t.Skipf("this machine is configured with no %s", what)
	}
	if err := Reachable(addresses[0]); err != nil {
		t.Skipf("this machine does not reach its %s: %v", what, err)
	}
	return addresses[0]
}

// inside runs a script in a sandbox of claude's profile, in a directory of the host's.
func (e *Environments) inside(t *testing.T, dir, script string, flags ...string) (out, errs string, err error) {
	t.Helper()
	cmd := e.Command(append(append([]string{"claude", "--no-input", "--no-state"}, flags...), "--", "sh", "-euc", script)...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(managerTime, func() { cmd.Process.Kill() })
	defer timer.Stop()
	began := time.Now()
	err = cmd.Wait()
	t.Logf("it took %v", time.Since(began).Round(100*time.Millisecond))
	return stdout.String(), stderr.String(), err
}

// works runs a script that ends with the word.
func (e *Environments) works(t *testing.T, dir, script, word string, flags ...string) {
	t.Helper()
	out, errs, err := e.inside(t, dir, script, flags...)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(out), word) {
		t.Errorf("%v\n%s\n%s", err, out, errs)
	}
}

// TestManagers: package managers inside fetch what the rules of a profile let them,
// from where this machine does.
func TestManagers(t *testing.T) {
	e := environments(t)
	t.Run("npm", func(t *testing.T) {
		registry := needs(t, "npm registry", []string{NPMRegistry()})
		dir := t.TempDir()
		lock := exec.Command("npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "ms@2.1.3")
		lock.Dir = dir
		if out, err := lock.CombinedOutput(); err != nil {
			t.Fatalf("make a lock file: %v\n%s", err, out)
		}
		out, errs, err := e.inside(t, dir, "npm ci --no-audit --no-fund", append([]string{"-e", "npm_config_fetch_retries=0"}, denied(registry)...)...)
		if err == nil || !strings.Contains(errs, Hosts([]string{registry})[0]+" ") || !strings.Contains(errs, "deny-rule") {
			t.Errorf("with the registry denied: %v\n%s\n%s", err, out, errs)
		}
		e.works(t, dir, `npm ci --no-audit --no-fund && node -p 'require("ms")("2s")'`, "2000")
		if _, err := os.Stat(filepath.Join(dir, "node_modules/ms/package.json")); err != nil {
			t.Error(err)
		}
	})
	t.Run("pip", func(t *testing.T) {
		needs(t, "index of Python packages", []string{PyPI()})
		e.works(t, t.TempDir(), `python3 -m venv .v && .v/bin/pip install -q six && .v/bin/python -c 'import six; print(six.__name__)'`, "six")
	})
	t.Run("go", func(t *testing.T) {
		proxy := needs(t, "module proxy of Go's", GoProxies())
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Fatal(err)
		}
		e.works(t, module(t), `export PATH=$PATH:/usr/local/go/bin GOTOOLCHAIN=local; go mod download && go mod verify`, "all modules verified",
			"-v", strings.TrimSpace(string(root))+":/usr/local/go:ro", "-e", "GOPROXY="+proxy, "--allow", Hosts([]string{proxy})[0])
	})
	t.Run("apt", func(t *testing.T) {
		needs(t, "package archive", AptSources())
		e.works(t, t.TempDir(), `sudo apt-get -q update && sudo env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends bc && echo '6*7' | bc`, "42")
	})
	t.Run("git", func(t *testing.T) {
		from := needs(t, "host of a git repository", []string{"https://" + modulePath})
		e.works(t, t.TempDir(), "git clone -q --depth=1 "+from+" a && git -C a log -1 --format=cloned", "cloned")
	})
}

// denied are the flags that deny a host.
func denied(address string) []string { return []string{"--deny", Hosts([]string{address})[0]} }

// modulePath is a module that these tests need themselves, with its sums.
const modulePath = "github.com/creack/pty"

// module is a directory with a module that needs that one.
func module(t *testing.T) string {
	t.Helper()
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir, version, own := t.TempDir(), "", ""
	for l := range strings.Lines(string(sums)) {
		if f := strings.Fields(l); f[0] == modulePath {
			version, own = strings.TrimSuffix(f[1], "/go.mod"), own+l
		}
	}
	for name, text := range map[string]string{"go.mod": "module example\n\ngo 1.18\n\nrequire " + modulePath + " " + version + "\n", "go.sum": own} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
