package repo

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Environment is the one that git is run with: no configuration but what the call
// names, no question, no network.
func Environment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin", "LC_ALL=C", "HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=",
	}
}

// parse has git read a configuration, as text. The last value of a key counts.
func parse(text string) (map[string]string, error) {
	list, err := list(text)
	return entries(list), err
}

// list has git read a configuration, as text: what it names is not followed, and
// nothing of it holds for that git.
func list(text string) (string, error) {
	cmd := exec.Command("git", "config", "--file", "-", "--no-includes", "--list", "-z")
	cmd.Dir, cmd.Env, cmd.Stdin = "/", append(Environment(), "GIT_DIR=/nonexistent"), strings.NewReader(text)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", errors.New("git is not installed here")
		}
		return "", fmt.Errorf("git cannot read its configuration: %.200q", bytes.TrimSpace(errs.Bytes()))
	}
	return out.String(), nil
}

// entries are the keys and values of git's list.
func entries(list string) map[string]string {
	all := map[string]string{}
	for e := range strings.SplitSeq(list, "\x00") {
		if key, value, ok := strings.Cut(e, "\n"); ok {
			all[key] = value
		}
	}
	return all
}

// User is the name and the address that the user's own configuration gives him; "" where
// it has none, or there is no git.
func User() (name, email string) {
	all := entries(global())
	return all["user.name"], all["user.email"]
}

// global is the list of the user's own configuration.
func global() string {
	cmd := exec.Command("git", "config", "--global", "--includes", "--list", "-z")
	cmd.Dir = "/"
	out, _ := cmd.Output()
	return string(out)
}
