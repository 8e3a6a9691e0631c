package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	sandbox "sb/lib/manifest"
	"sb/lib/say"
	"sb/sb-image/ext4"
)

func runWarm(args []string) error {
	flags := say.Flags("sb-image warm", "[flags] TARGET", `
Boots the machine of TARGET, as sb-run takes one, and saves it, so that the first
sandbox of its kind starts from memory too. Does nothing if that is done. The
flags are sb-run's: another size is another machine.`)
	cpus := flags.Int("cpus", 0, "a machine with `N` processors")
	memory := flags.String("memory", "", "a machine with `SIZE` of memory")
	disk := flags.String("disk", "", "a machine whose disk grows to `SIZE`")
	accel := flags.String("accel", "", "a machine that runs by `HOW`: auto, kvm or tcg")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return say.Usage("warm takes one target, not %d", flags.NArg())
	}
	var sizes []string
	if *cpus != 0 {
		sizes = append(sizes, "--cpus="+strconv.Itoa(*cpus))
	}
	for name, value := range map[string]string{"memory": *memory, "disk": *disk, "accel": *accel} {
		if value != "" {
			sizes = append(sizes, "--"+name+"="+value)
		}
	}
	return untilSignal(func(ctx context.Context) error { return warm(ctx, flags.Arg(0), sizes) })
}

// warm has sb-run say what the machine is, and sb-vm save it.
func warm(ctx context.Context, target string, sizes []string) error {
	dir, err := os.MkdirTemp("", "sb-warm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	words := append([]string{target, "--print"}, sizes...)
	if !strings.HasSuffix(target, ".toml") {
		words = append(words, "--workspace="+dir) // a profile would share this directory
	}
	text, err := another(ctx, "sb-run", words...)
	if err != nil {
		return err
	}
	m, err := sandbox.Parse("the manifest of "+target, []byte(text))
	if err != nil {
		return err
	}
	if m.Machine.Disk == "" {
		m.Machine.Disk = filepath.Join(dir, "disk")
		if err := ext4.Make(m.Machine.Disk, int64(m.Machine.DiskSize)); err != nil {
			return fmt.Errorf("make a disk: %w", err)
		}
	}
	b, err := m.Encode()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "sandbox.toml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return err
	}
	_, err = another(ctx, "sb-vm", "--save", "--manifest", file)
	return err
}

// another runs another of our tools, the one beside this or else on PATH, and
// returns what it answers. What it says to people it says itself, at once; that it
// failed is among that.
func another(ctx context.Context, name string, args ...string) (string, error) {
	path := name
	if self, err := os.Executable(); err == nil {
		if _, err := os.Stat(filepath.Join(filepath.Dir(self), name)); err == nil {
			path = filepath.Join(filepath.Dir(self), name)
		}
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return "", say.WithHint(err, "the tools of a release are installed together: make install")
	}
	p := newProgram(exec.CommandContext(ctx, path, args...))
	var out strings.Builder
	p.Stdout, p.Stderr = &out, os.Stderr
	err = p.runLeashed()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited() && ctx.Err() == nil:
		return "", say.Exit(say.CodeFailed)
	case err != nil:
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return out.String(), nil
}
