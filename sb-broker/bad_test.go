//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sb/lib/fd"

	"golang.org/x/sys/unix"
)

// keeperIn starts the keeper as a process, with a configuration. Its error is that it
// ended before it was ready, with what it said.
func keeperIn(t *testing.T, home string) (wire *os.File, err error) {
	t.Helper()
	near, far, perr := fd.Pair("secrets", fd.Stream)
	r, w, perr2 := os.Pipe()
	leash, farLeash, perr3 := os.Pipe()
	if perr != nil || perr2 != nil || perr3 != nil {
		t.Fatal(perr, perr2, perr3)
	}
	defer r.Close()
	var said strings.Builder
	cmd := exec.Command(os.Args[0], "keep", "anthropic", "--secrets=3", "--ready=4", "--leash=5")
	cmd.Env = append(os.Environ(), inTest+"=keeper", "SB_HOME="+home, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "DBUS_SESSION_BUS_ADDRESS=", "XDG_RUNTIME_DIR=", "HOME="+home)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{far, w, leash}, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{far, w, leash} {
		f.Close()
	}
	t.Cleanup(func() { farLeash.Close(); near.Close() })
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		cmd.Wait()
		return nil, fmt.Errorf("%s", said.String())
	}
	t.Cleanup(func() { farLeash.Close(); cmd.Wait() })
	if near, err = again(near); err != nil {
		t.Fatal(err)
	}
	return near, nil
}

// TestBadSecrets: a secret that is not there, or none, is known before a machine boots,
// by its name; one that becomes so while a sandbox runs is put into no request, and no
// request goes out. Before, and after it is put right, requests pass with it.
func TestBadSecrets(t *testing.T) {
	const (
		file = `"file:%s/key"`
		cmd  = `["cmd:sh", "%s/key"]`
	)
	write := func(text string, mode os.FileMode) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	for _, c := range []struct {
		name, source string
		make         func(path string) error
		why          string
	}{
		{"a line break in it", file, write("sk-real\nX-Admin: yes\n", 0o600), "there is a line break in it"},
		{"1 MB", file, write(strings.Repeat("x", 1<<20), 0o600), "it has more than 16384 bytes"},
		{"empty", file, write("", 0o600), "it is empty"},
		{"NUL", file, write("sk-real-\x00-abc", 0o600), "no visible ASCII character"},
		{"no file", file, func(string) error { return nil }, "no such file"},
		{"a directory", file, func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
		{"a FIFO", file, func(path string) error { return unix.Mkfifo(path, 0o600) }, "is a FIFO that nobody writes to"},
		{"for all to read", file, write(secret, 0o644), "can be read by others (mode 0644)"},
		{"for a group to read", file, write(secret, 0o640), "can be read by others (mode 0640)"},
		{"a command that fails", cmd, write("echo "+secret+"; echo the vault is sealed >&2; exit 3", 0o600), "exit status 3: the vault is sealed"},
		{"a command that prints nothing", cmd, write(":", 0o600), "printed nothing on stdout, and did not fail"},
		{"a command that prints 10 MB", cmd, write("head -c 10000000 /dev/zero | tr '\\000' x", 0o600), "it has more than 16384 bytes"},
		{"a command that hangs", cmd, write("sleep 1000", 0o600), "did not end within 10s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			os.Chmod(home, 0o700)
			path := filepath.Join(home, "key")
			good := map[string]string{file: secret, cmd: "echo " + secret}[c.source]
			config := "[source]\nanthropic = " + fmt.Sprintf(c.source, home) + "\n"
			if err := os.MkdirAll(filepath.Join(home, "config"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(home, "config", "config.toml"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			put := func(make func(string) error) {
				t.Helper()
				os.RemoveAll(path)
				if err := make(path); err != nil {
					t.Fatal(err)
				}
			}
			put(c.make)
			if _, err := keeperIn(t, home); err == nil || !strings.Contains(err.Error(), "secret anthropic (") || !strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), secret) {
				t.Errorf("at the start: %v, want %s", err, c.why)
			}
			put(write(good, 0o600))
			wire, err := keeperIn(t, home)
			if err != nil {
				t.Fatal(err)
			}
			w := start(t, echo, anthropic())
			w.b.keeper = newKeeper(wire)
			client := w.client(false)
			w.passes(client, request("GET", "/", nil))
			put(c.make)
			w.refuses(client, request("GET", "/", nil), 502, "secret-unavailable")
			w.has("deny secret-unavailable anthropic")
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if h := w.b.keeper.get(ctx, "anthropic"); !strings.Contains(h.text, "secret anthropic (") || !strings.Contains(h.text, c.why) || strings.Contains(h.text, secret) {
				t.Errorf("while it runs: %q, want %s", h.text, c.why)
			}
			put(write(good, 0o600))
			w.passes(client, request("GET", "/", nil))
		})
	}
}
