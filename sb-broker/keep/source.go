package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sb/lib/binding"
	"sb/lib/say"
)

// most is what is read of a secret: enough to see that it is too long.
const most = binding.MaxSecret + 2

// commandTime is how long a command may take to print a secret.
const commandTime = 10 * time.Second

// fromSource reads a secret where the user said that it is.
func (k *keeper) fromSource(ctx context.Context, s binding.Source) ([]byte, error) {
	switch s.Kind {
	case "env":
		v, ok := os.LookupEnv(s.Words[0])
		if !ok {
			return nil, fault{"missing", fmt.Errorf("the variable %s is not set", s.Words[0])}
		}
		return []byte(v), nil
	case "file":
		return fromPath(ctx, s.Words[0])
	case "fd":
		return k.fromFD(s.FD())
	case "cmd":
		return fromCommand(ctx, s.Words)
	}
	return nil, errors.New("there is no such source")
}

// fromPath reads a file of the user's. One that others may read is no secret: as ssh
// does, it is refused. What root or another user has made readable for this one is
// theirs to know.
func fromPath(ctx context.Context, path string) ([]byte, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(home, rest)
	}
	return bounded(ctx, func() ([]byte, error) {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO that nobody writes must not be waited for
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault{"missing", err}
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if owner, ok := st.Sys().(*syscall.Stat_t); ok && int(owner.Uid) == os.Getuid() && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
			return nil, say.WithHint(fault{"failed", fmt.Errorf("%s can be read by others (mode %#o)", path, st.Mode().Perm())}, "chmod 600 %s", path)
		}
		text, err := io.ReadAll(io.LimitReader(f, most))
		if err == nil && len(text) == 0 && st.Mode()&fs.ModeNamedPipe != 0 {
			return nil, fault{"missing", fmt.Errorf("%s is a FIFO that nobody writes to", path)}
		}
		return text, err
	})
}

// fromFD reads a descriptor: one that was read before has been remembered, since
// a pipe can be read once.
func (k *keeper) fromFD(n int) ([]byte, error) {
	if v, ok := k.given[n]; ok {
		return bytes.Clone(v), nil
	}
	return nil, say.WithHint(fault{"missing", fmt.Errorf("descriptor %d is not open", n)}, "give it: sb-run … %d<FILE", n)
}

// fromCommand runs a command and returns what it prints. What it says on stderr
// is in the error: to say why is its business.
func fromCommand(ctx context.Context, words []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	out, errs := &clipped{most: most}, &clipped{most: 2000}
	cmd.Stdout, cmd.Stderr = out, errs
	// Not where the user is, which a guest may share: git, Python and others take
	// settings and code from there.
	cmd.Dir = "/"
	// In a group of its own, so that what it started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fault{"timeout", fmt.Errorf("%s did not end within %v", words[0], commandTime)}
	case errors.Is(err, exec.ErrWaitDelay):
		clear(out.b)
		return nil, fault{"failed", fmt.Errorf("%s has ended, and something that it started goes on and holds its output open", words[0])}
	case err != nil:
		clear(out.b)
		text, _, _ := strings.Cut(strings.TrimSpace(string(errs.b)), "\n")
		if text != "" {
			return nil, fault{"failed", fmt.Errorf("%s: %w: %s", words[0], err, say.Safe(text))}
		}
		return nil, fault{"failed", fmt.Errorf("%s: %w", words[0], err)}
	}
	if len(trim(out.b)) == 0 {
		return nil, say.WithHint(fault{"bad-value", fmt.Errorf("%s printed nothing on stdout, and did not fail", words[0])}, "the secret is what it prints; run it by hand, from /")
	}
	return out.b, nil
}

// clipped keeps the beginning of what is written to it, in one piece of memory.
type clipped struct {
	b    []byte
	most int
}

func (c *clipped) Write(p []byte) (int, error) {
	if c.b == nil {
		c.b = make([]byte, 0, c.most)
	}
	c.b = append(c.b, p[:min(len(p), c.most-len(c.b))]...)
	return len(p), nil
}

// bounded runs what cannot be interrupted, as long as ctx lasts.
func bounded(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type answer struct {
		value []byte
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := read()
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		return nil, fault{"timeout", errors.New("it took too long to read")}
	}
}
