package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"sb/lib/say"
)

// maxEnvLine bounds a line of an --env-file; what all of them may be together is
// bounded by the guest stream.
const maxEnvLine = 1 << 20

// environment joins the variables of files and flags; a flag beats a file, a
// later word an earlier one.
func environment(words, files []string) (map[string]string, error) {
	env := map[string]string{}
	for _, file := range files {
		if err := readEnvironment(env, file); err != nil {
			return nil, err
		}
	}
	for _, w := range words {
		if err := setVariable(env, w); err != nil {
			return nil, say.Usage("--env: %v", err)
		}
	}
	return env, nil
}

func readEnvironment(env map[string]string, file string) error {
	if file == "" {
		return say.Usage("--env-file: its value is empty; name a file, or leave the flag out")
	}
	f, err := os.Open(file)
	if err != nil {
		return say.Usage("--env-file: %w", err)
	}
	defer f.Close()
	return readVariables(env, file, f)
}

func readVariables(env map[string]string, file string, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEnvLine)
	for n := 1; lines.Scan(); n++ {
		l := strings.TrimLeft(lines.Text(), " \t")
		if l == "" || l[0] == '#' {
			continue
		}
		if err := setVariable(env, l); err != nil {
			return say.Usage("--env-file: %s:%d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return say.Usage("--env-file: read %s: %w", file, err)
	}
	return nil
}

// setVariable sets what NAME=VALUE says, or NAME to what it is here.
func setVariable(env map[string]string, word string) error {
	name, value, has := strings.Cut(word, "=")
	if name == "" || strings.ContainsAny(name, " \t\r\n\x00") {
		return fmt.Errorf("%q is no variable: NAME=VALUE, or NAME for the one here", word)
	}
	if !has {
		var ok bool
		if value, ok = os.LookupEnv(name); !ok {
			return nil // as Docker does: what is not set here is not set there
		}
	}
	env[name] = value
	return nil
}
