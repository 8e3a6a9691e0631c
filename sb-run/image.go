package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sb/lib/manifest"
	"sb/lib/say"
)

// image is what sb-image knows of one.
type image struct {
	Ref    string `json:"ref"`
	Digest string `json:"digest"`
	Config struct {
		Env        []string
		Entrypoint []string
		Cmd        []string
		WorkingDir string
		User       string
	} `json:"config"`
	Path string `json:"path"` // of its file system
}

// tools are the paths of those that run with the machine, by name. They are
// looked up before it boots and not again: what lies in a share could have been
// changed by then, but for these (plan.protect).
type tools map[string]string

func findTools(m *manifest.Manifest) (tools, error) {
	found := tools{}
	needed := []string{"sb-gate", "sb-dns", "sb-vm"}
	if len(m.Credentials) > 0 {
		needed = append(needed, "sb-broker")
	}
	for _, name := range needed {
		path, err := tool(name)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			return nil, err
		}
		found[name] = path
	}
	return found, nil
}

// dirs are where the tools lie, and this program.
func (t tools) dirs() (paths []string) {
	for _, path := range t {
		paths = append(paths, filepath.Dir(path))
	}
	if self, err := os.Executable(); err == nil {
		paths = append(paths, filepath.Dir(self))
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// tool is the path of another of our binaries: beside this one, or else on PATH.
func tool(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			path := filepath.Join(filepath.Dir(real), name)
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	path, err := lookPath(name)
	if err != nil {
		return "", say.WithHint(fmt.Errorf("find %s: %w", name, err), "the tools of a release are installed together: make install")
	}
	return path, nil
}

// lookPath is exec.LookPath, whose error names the program that the caller
// names too.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	var named *exec.Error
	if errors.As(err, &named) {
		err = named.Err
	}
	return path, err
}

// undoTime is how long sb-image may take to undo what it began.
const undoTime = 25 * time.Second

// ask runs sb-image and returns its answer. What it says to people goes to
// stderr if it may speak, and into the error otherwise. It has the whole of our
// environment, as if the user had called it: a registry may need a proxy or a
// credential helper. The end of the run, and that of this process, end it.
func ask(e *ending, speak bool, args ...string) (string, error) {
	path, err := tool("sb-image")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(e.ctx, path, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = undoTime
	var out bytes.Buffer
	words := &said{name: "sb-image", to: io.Discard}
	cmd.Stdout, cmd.Stderr = &out, words
	if speak {
		cmd.Stderr = os.Stderr
	}
	defer endWithUs(cmd)()
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start sb-image: %w", err)
	}
	defer context.AfterFunc(e.hurry, func() { cmd.Process.Kill() })()
	err = cmd.Wait()
	if err == nil {
		return strings.TrimSpace(out.String()), nil
	}
	words.flush()
	text, hints := words.words()
	var exit *exec.ExitError
	switch {
	case !errors.As(err, &exit):
		err = fmt.Errorf("run sb-image: %w", err)
	case text != "":
		err = errors.New(text)
	case speak && exit.Exited():
		err = fmt.Errorf("sb-image %s failed (its message is above)", strings.Join(args, " "))
	default:
		err = fmt.Errorf("sb-image %s: %w", strings.Join(args, " "), err)
	}
	return "", withHints(err, hints)
}

// findImage returns an image of the store, after fetching it if it is not there.
func findImage(e *ending, ref string) (*image, error) {
	im, err := showImage(e, ref)
	if err == nil {
		return im, nil
	}
	if _, err := ask(e, true, "pull", ref); err != nil {
		return nil, err
	}
	return showImage(e, ref)
}

// showImage returns an image that is in the store.
func showImage(e *ending, ref string) (*image, error) {
	text, err := ask(e, false, "show", ref)
	if err != nil {
		return nil, err
	}
	im := &image{}
	if err := json.Unmarshal([]byte(text), im); err != nil {
		return nil, fmt.Errorf("read what sb-image says of %s: %w", ref, err)
	}
	return im, nil
}

// env is the image's variables.
func (im *image) env() map[string]string {
	env := map[string]string{}
	for _, kv := range im.Config.Env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

// addImage has sb-image, at path, keep a root file system that it reads from
// archive, as an image that is otherwise like another one.
func addImage(ctx context.Context, path, ref, like string, archive *os.File) error {
	cmd := exec.CommandContext(ctx, path, "add", "--like="+like, ref)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = undoTime
	words := &said{name: "sb-image", to: os.Stderr}
	cmd.Stdin, cmd.Stderr = archive, words
	defer endWithUs(cmd)()
	if err := cmd.Run(); err != nil {
		words.flush()
		text, hints := words.words()
		if text != "" {
			err = errors.New(text)
		}
		return withHints(fmt.Errorf("keep what was made: %w", err), hints)
	}
	return nil
}

// findKernel looks for the kernel. The function that it returns waits for its
// directory, after fetching one if there is none.
func findKernel(e *ending) func() (string, error) {
	shown := meanwhile(func() (string, error) { return ask(e, false, "kernel", "show") })
	return func() (string, error) {
		dir, err := shown()
		if err == nil || e.ended() {
			return dir, err
		}
		say.Note("no kernel yet: sb-image kernel install")
		return ask(e, true, "kernel", "install")
	}
}

// makeDisk makes the writable disk of a machine.
func makeDisk(e *ending, m *manifest.Manifest) error {
	size := m.Machine.DiskSize
	if _, err := ask(e, false, "disk", m.Machine.Disk, "--size", size.String()); err != nil {
		return fmt.Errorf("disk of %s: %w", size, err)
	}
	return nil
}

// meanwhile begins f at once. The function that it returns waits for its result.
func meanwhile(f func() (string, error)) func() (string, error) {
	result := sync.OnceValues(f)
	go result()
	return result
}
