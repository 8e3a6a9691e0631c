package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"sb/lib/fd"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// maxPairs keeps the numbers small: a shell names no descriptor above 9 when it
// redirects.
const maxPairs = 4

// pair makes socket pairs and becomes a command that has their numbers in its
// environment: frames=dgram gives frames_a and frames_b.
func pair(args []string) error {
	flags := say.Flags("sb-run pair", "NAME=dgram|stream… -- CMD…",
		"Runs a command with unnamed socket pairs open, their descriptors in NAME_a and NAME_b.")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	dash := flags.ArgsLenAtDash()
	if dash < 1 || dash == flags.NArg() {
		return say.Usage("sb-run pair needs NAME=dgram or NAME=stream, and a command behind --")
	}
	names, command := flags.Args()[:dash], flags.Args()[dash:]
	if len(names) > maxPairs {
		return say.Usage("at most %d pairs: a shell can name no descriptor above 9", maxPairs)
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return say.WithCode(fmt.Errorf("run %s: %w", command[0], err), 127)
	}
	env := os.Environ()
	for _, word := range names {
		name, kindName, _ := strings.Cut(word, "=")
		kind, ok := map[string]fd.Kind{"dgram": fd.Dgram, "stream": fd.Stream}[kindName]
		if !ok || !isVariable(name) {
			return say.Usage("%q is not NAME=dgram or NAME=stream", word)
		}
		a, b, err := fd.Pair(name, kind)
		if err != nil {
			return err
		}
		for i, f := range []*os.File{a, b} {
			// Left open for the command; nothing here is run after it.
			if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
				return fmt.Errorf("pass %s on: %w", name, err)
			}
			env = append(env, fmt.Sprintf("%s_%c=%d", name, 'a'+i, f.Fd()))
		}
	}
	return say.WithCode(fmt.Errorf("run %s: %w", path, unix.Exec(path, command, env)), 126)
}

func isVariable(s string) bool {
	for i, c := range []byte(s) {
		if !(c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != ""
}
