package reach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"sb/lib/profile"
)

// ErrUnreachable is why an environment is not built: what it is made of is nowhere
// to be had.
var ErrUnreachable = errors.New("this machine does not reach it")

// Environments builds environments of profiles, by sb-run itself, in a store that
// tests share.
type Environments struct {
	bin string // where the tools are
	env []string
	dir string // Config and what sb-run keeps
}

// Open makes Environments in the store at data (an XDG_DATA_HOME).
func Open(ctx context.Context, bin, data string) (*Environments, error) {
	m, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	e := &Environments{bin: bin, dir: filepath.Join(data, "environments")}
	e.env = append(os.Environ(), "XDG_DATA_HOME="+data, "XDG_CONFIG_HOME="+filepath.Join(e.dir, "config"), "XDG_STATE_HOME="+filepath.Join(e.dir, "state"),
		"XDG_RUNTIME_DIR=", "SB_HOME=", "HOME="+e.dir)
	for _, dir := range []string{"config/sb/agents", "work"} {
		if err := os.MkdirAll(filepath.Join(e.dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if err := write(filepath.Join(e.Config(), "config.toml"), m.Config()); err != nil {
		return nil, err
	}
	return e, e.profiles(m)
}

// write writes a file that others may be reading.
func write(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close(), os.Rename(f.Name(), path))
}

// Agents are the profiles that have an environment to build.
var Agents = []string{"claude", "codex", "copilot", "gemini", "opencode", "pi"}

// profiles writes those that are not as they are built in.
func (e *Environments) profiles(m *Means) error {
	builtIn := profile.Open(filepath.Join(e.dir, "none"))
	for _, name := range Agents {
		file := filepath.Join(e.Config(), "agents", name+".toml")
		if m.Step() == "" {
			os.Remove(file)
			continue
		}
		text, _, err := builtIn.Text(name)
		if err != nil {
			return err
		}
		changed, err := m.Profile(string(text))
		if err == nil {
			err = write(file, changed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Config is the user's configuration directory with which sb-run has the
// environments: to be copied by those who run it otherwise.
func (e *Environments) Config() string { return filepath.Join(e.dir, "config", "sb") }

// Command is sb-run with these words, in an empty directory.
func (e *Environments) Command(words ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(e.bin, "sb-run"), words...)
	cmd.Env, cmd.Dir = e.env, filepath.Join(e.dir, "work")
	return cmd
}

// built is what sb-run says of an environment that it made.
var built = regexp.MustCompile(`is built, in (\S+)`)

// Build has sb-run run nothing in a sandbox of the profile, which builds its
// environment, unless it is there. It returns how long that took sb-run, "" if it was
// there.
func (e *Environments) Build(name string) (took string, err error) {
	var said bytes.Buffer
	cmd := e.Command(name, "--no-input", "--no-state", "--", "true")
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
	if m := built.FindSubmatch(said.Bytes()); m != nil {
		took = string(m[1])
	}
	if err == nil {
		return took, nil
	}
	if far := Reachable(NPMRegistry()); far != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreachable, far)
	}
	return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, said.String())
}

// BuildAll builds several, two at a time, and says of each that is not there why.
func (e *Environments) BuildAll(names []string) map[string]error {
	var mu sync.Mutex
	var wait sync.WaitGroup
	failed := map[string]error{}
	room := make(chan bool, 2)
	for _, name := range names {
		wait.Go(func() {
			room <- true
			defer func() { <-room }()
			took, err := e.Build(name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed[name] = err
			case took != "":
				fmt.Printf("  the environment of %s was built in %s\n", name, took)
			}
		})
	}
	wait.Wait()
	return failed
}

// Reachable says why this machine does not reach an address, nil if it does: without
// a proxy, as a sandbox would.
func Reachable(address string) error {
	if _, err := url.ParseRequestURI(address); err != nil {
		return errors.New("no address is configured")
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answer, err := client.Head(address)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
