// Package dirs says where the sb tools keep their files.
//
// The XDG base directories on every system, as users of command line tools
// expect; on macOS, where the XDG variable is not set, a directory of the same
// purpose under ~/Library/Application Support/sb. SB_HOME, if set, holds all of them. Every directory of ours
// is 0700 and owned by the user; one that is not is refused, since another user
// could have put a file there.
package dirs

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// Config holds config.toml and the user's profiles.
func Config() (string, error) { return dir("config", "XDG_CONFIG_HOME", ".config") }

// Data holds images, kernels and templates: what sb-image keeps.
func Data() (string, error) { return dir("data", "XDG_DATA_HOME", ".local/share") }

// State holds the run directories and the logs of earlier runs.
func State() (string, error) { return dir("state", "XDG_STATE_HOME", ".local/state") }

// Runtime holds control sockets, whose paths must be short. Without
// XDG_RUNTIME_DIR it lies in the state directory.
func Runtime() (string, error) {
	if os.Getenv("SB_HOME") == "" && os.Getenv("XDG_RUNTIME_DIR") != "" {
		return Ensure(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "sb"))
	}
	state, err := State()
	if err != nil {
		return "", err
	}
	return Ensure(filepath.Join(state, "ctl"))
}

func dir(kind, env, unixDir string) (string, error) {
	if home := os.Getenv("SB_HOME"); home != "" {
		if !filepath.IsAbs(home) {
			return "", fmt.Errorf("SB_HOME is %q, not an absolute path", home)
		}
		if _, err := Ensure(home); err != nil {
			return "", err
		}
		return Ensure(filepath.Join(home, kind))
	}
	// A relative XDG path is to be ignored (XDG base directory specification 0.8).
	if base := os.Getenv(env); filepath.IsAbs(base) {
		return Ensure(filepath.Join(base, "sb"))
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", say.WithHint(fmt.Errorf("find the %s directory: %w", kind, err), "set HOME, %s or SB_HOME", env)
	}
	if runtime.GOOS == "darwin" {
		mac := filepath.Join(home, "Library", "Application Support", "sb")
		if _, err := Ensure(mac); err != nil {
			return "", err
		}
		return Ensure(filepath.Join(mac, kind))
	}
	return Ensure(filepath.Join(home, unixDir, "sb"))
}

// Ensure makes path and its parents if they are missing, and refuses a path
// that is not a directory, is not owned by this user or is open to others.
func Ensure(path string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "", fmt.Errorf("use %s: not a directory", path)
	case int(st.Uid) != os.Geteuid():
		return "", fmt.Errorf("use %s: owned by user %d, not by %d", path, st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		return "", say.WithHint(fmt.Errorf("use %s: mode %04o lets others in", path, st.Mode&0o7777), "chmod 700 %s", path)
	}
	return path, nil
}
