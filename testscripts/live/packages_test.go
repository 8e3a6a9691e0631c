package live

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// agent is a coding agent as its vendor publishes it: the npm package of one
// platform, of which one file is the program.
type agent struct {
	name, pack, integrity, file string
}

var agents = map[string]agent{
	"claude": {"claude", "@anthropic-ai/claude-code-linux-x64@2.1.332",
		"sha512-f4JWhzwYutJIHScC7/dYOPX6s28tt7ZADhsOi8zwOHq5fFPEuUeChh2NMfinSg0GrUckYxaeebC4h0DqiKzLcw==", "package/claude"},
	"codex": {"codex", "@openai/codex@0.171.0-linux-x64",
		"sha512-l66NZkQgdk2C3pbcfULDz42yEUB581MVA6I+Y43Wp4OIqEy73HCdmZ0GTjeAHY2ycuH4N00d9VsLrwT1jxshTw==", "package/vendor/x86_64-unknown-linux-musl/bin/codex"},
}

// clientsVar says why there are no clients, "" if they are there: skip: REASON where
// they cannot be had, or what went wrong.
const clientsVar = "SB_LIVE_CLIENTS"

func packagesDir() string { return filepath.Join(os.Getenv(dataVar), "clients") }

// at is the client's place below the directory of all.
func (c agent) at() string {
	return filepath.Join(c.name+"-"+c.pack[strings.LastIndex(c.pack, "@")+1:], c.name)
}

// fetchClients fetches what is not there, by the machine's own npm.
func fetchClients(dir string) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("skip: the clients are pinned for amd64, this is %s", runtime.GOARCH)
	}
	for _, c := range agents {
		if _, err := os.Stat(filepath.Join(dir, c.at())); err == nil {
			continue
		}
		if _, err := exec.LookPath("npm"); err != nil {
			return errors.New("skip: npm is not installed, which fetches the clients (make deps installs it)")
		}
		if err := c.fetch(dir); err != nil {
			return fmt.Errorf("fetch %s: %w", c.pack, err)
		}
	}
	return nil
}

// fetch has npm fetch the package, from where the machine's npm fetches packages.
func (c agent) fetch(dir string) error {
	tmp, err := os.MkdirTemp("", "sb-client-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if out, err := command("npm", "pack", "--silent", "--pack-destination", tmp, c.pack); err != nil {
		return fmt.Errorf("npm pack: %w\n%s", err, out)
	}
	files, _ := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if len(files) != 1 {
		return fmt.Errorf("npm pack left %v", files)
	}
	f, err := os.Open(files[0])
	if err != nil {
		return err
	}
	defer f.Close()
	return c.unpack(f, filepath.Join(dir, c.at()))
}

// unpack makes the program of a package that is the pinned one.
func (c agent) unpack(pack io.ReadSeeker, to string) error {
	sum := sha512.New()
	if _, err := io.Copy(sum, pack); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != c.integrity {
		return fmt.Errorf("its integrity is %s, pinned is %s", got, c.integrity)
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	text, err := gzip.NewReader(pack)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	for files := tar.NewReader(text); ; {
		h, err := files.Next()
		if err != nil {
			return fmt.Errorf("look for %s in it: %w", c.file, err)
		}
		if h.Name != c.file {
			continue
		}
		out, err := os.OpenFile(to+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, files)
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
		return os.Rename(to+".new", to)
	}
}

// in returns the client's path in a guest that has the clients at /clients.
func (c agent) in(t *testing.T) string {
	t.Helper()
	if why := os.Getenv(clientsVar); strings.HasPrefix(why, "skip: ") {
		t.Skip(strings.TrimPrefix(why, "skip: "))
	} else if why != "" {
		t.Fatal(why)
	}
	return filepath.Join("/clients", c.at())
}

// TestPinned: a package that is not the pinned one is not unpacked.
func TestPinned(t *testing.T) {
	t.Parallel()
	claim(t, "pinned")
	var pack bytes.Buffer
	packed := gzip.NewWriter(&pack)
	files := tar.NewWriter(packed)
	for _, name := range []string{"package/other", "package/program"} {
		files.WriteHeader(&tar.Header{Name: name, Size: int64(len(name)), Mode: 0o644})
		files.Write([]byte(name))
	}
	files.Close()
	packed.Close()
	sum := sha512.Sum512(pack.Bytes())
	c := agent{"program", "@vendor/program@1.2.3", "sha512-" + base64.StdEncoding.EncodeToString(sum[:]), "package/program"}
	to := filepath.Join(t.TempDir(), c.at())
	if err := c.unpack(bytes.NewReader(append(pack.Bytes(), 0)), to); err == nil || !strings.Contains(err.Error(), c.integrity) {
		t.Errorf("one with a byte more: %v", err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("it was unpacked")
	}
	if err := c.unpack(bytes.NewReader(pack.Bytes()), to); err != nil {
		t.Errorf("control: %v", err)
	}
	if text, err := os.ReadFile(to); string(text) != "package/program" || !strings.HasSuffix(to, "program-1.2.3/program") {
		t.Errorf("%s holds %q (%v)", to, text, err)
	}
}
