package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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
	path string
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
	path, err := exec.LookPath(name)
	if err != nil {
		return "", say.WithHint(fmt.Errorf("find %s: %w", name, err), "the tools of a release are installed together: make install")
	}
	return path, nil
}

// ask runs sb-image and returns its answer. What it says to people goes to
// stderr if it may speak, and into the error otherwise.
func ask(speak bool, args ...string) (string, error) {
	path, err := tool("sb-image")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(path, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if speak {
		cmd.Stderr = os.Stderr
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", &imageError{args: args, text: errs.String(), code: exit.ExitCode()}
	}
	return strings.TrimSpace(string(out)), err
}

// imageError is sb-image's own: its words are for people already.
type imageError struct {
	args []string
	text string
	code int
}

func (e *imageError) Error() string {
	text := strings.TrimSpace(e.text)
	if text == "" {
		return fmt.Sprintf("sb-image %s failed (its message is above)", strings.Join(e.args, " "))
	}
	first, _, _ := strings.Cut(text, "\n")
	return strings.TrimPrefix(strings.TrimPrefix(first, "sb-image: "), "error: ")
}

// findImage returns an image of the store, after fetching it if it is not there.
func findImage(ref string) (*image, error) {
	text, err := ask(false, "show", ref)
	if err != nil {
		if _, err := ask(true, "pull", ref); err != nil {
			return nil, err
		}
		if text, err = ask(false, "show", ref); err != nil {
			return nil, err
		}
	}
	im := &image{}
	if err := json.Unmarshal([]byte(text), im); err != nil {
		return nil, fmt.Errorf("read what sb-image says of %s: %w", ref, err)
	}
	im.path, err = ask(false, "path", im.Digest)
	return im, err
}

// findKernel returns the directory of the kernel, after fetching one if there
// is none.
func findKernel() (string, error) {
	dir, err := ask(false, "kernel", "show")
	if err == nil {
		return dir, nil
	}
	say.Note("no kernel yet: sb-image kernel install")
	return ask(true, "kernel", "install")
}
