package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"sb/lib/fd"
	"sb/lib/say"

	"golang.org/x/sys/unix"
)

// maxPairs keeps the numbers small: a shell passes any descriptor on by its number,
// but redirects none above 9.
const maxPairs = 6

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
		return say.WithHint(say.Usage("sb-run pair needs NAME=dgram or NAME=stream, and a command behind --"), "sb-run pair wire=stream -- sh")
	}
	wanted, err := parsePairs(flags.Args()[:dash])
	if err != nil {
		return err
	}
	command := flags.Args()[dash:]
	path, err := lookPath(command[0])
	if err != nil {
		return say.WithCode(fmt.Errorf("run %s: %w", command[0], err), codeOf(err))
	}
	env, files, err := openPairs(wanted)
	if err != nil {
		return err
	}
	err = unix.Exec(path, command, append(os.Environ(), env...))
	runtime.KeepAlive(files)
	return say.WithCode(fmt.Errorf("run %s: %w", path, err), 126)
}

// codeOf is what a shell gives for a command that it cannot run.
func codeOf(err error) int {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EISDIR) {
		return 126
	}
	return 127
}

// wantedPair is a pair that is asked for.
type wantedPair struct {
	name string
	kind fd.Kind
}

func parsePairs(words []string) (wanted []wantedPair, err error) {
	if len(words) > maxPairs {
		return nil, say.Usage("%d pairs, at most %d", len(words), maxPairs)
	}
	for _, word := range words {
		name, kindName, _ := strings.Cut(word, "=")
		kind, ok := map[string]fd.Kind{"dgram": fd.Dgram, "stream": fd.Stream}[kindName]
		if !ok || !isVariable(name) {
			return nil, say.Usage("%q is not NAME=dgram or NAME=stream", word)
		}
		if slices.ContainsFunc(wanted, func(w wantedPair) bool { return w.name == name }) {
			return nil, say.Usage("the pair %s is asked for twice", name)
		}
		wanted = append(wanted, wantedPair{name, kind})
	}
	return wanted, nil
}

// openPairs makes the pairs and leaves them open for the command, on the lowest
// numbers that are free; nothing here is run after it. It returns the variables
// that name them.
func openPairs(wanted []wantedPair) (env []string, files []*os.File, err error) {
	for _, w := range wanted {
		a, b, err := fd.Pair(w.name, w.kind)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, a, b)
		for i, f := range []*os.File{a, b} {
			if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
				return nil, nil, fmt.Errorf("pass %s on: %w", w.name, err)
			}
			env = append(env, fmt.Sprintf("%s_%c=%d", w.name, 'a'+i, f.Fd()))
		}
	}
	return env, files, nil
}

func isVariable(s string) bool {
	for i, c := range []byte(s) {
		if !(c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != ""
}
