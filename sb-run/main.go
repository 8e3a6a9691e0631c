// Sb-run composes a sandbox: it starts sb-dns, sb-gate and sb-vm, joins them by
// descriptors, owns their run directory and their life, and runs a command in
// the machine with the user's terminal.
//
// It parses no network byte and holds no secret. Everything it does can be done
// without it: sb-run --print=sh prints how.
package main

import (
	"errors"

	"sb/lib/say"
)

func main() { say.Main("sb-run", run) }

// The exit codes that are not the command's own, as Docker's and a shell's.
const (
	codeOwn       = 125 // sb-run itself failed
	codeInterrupt = 130 // Ctrl-C
)

var verbs = []say.Verb{
	{Name: "pair", Args: "NAME=dgram|stream… -- CMD", Text: "run a command with socket pairs to pass on", Run: pair},
	{Name: "attach", Args: "--guest N -- CMD", Text: "run a command in a machine by its guest stream", Run: attach},
}

func run(args []string) error {
	err := dispatch(args)
	var e *say.Error
	if err == nil || say.Code(err) == say.CodeOK || errors.As(err, &e) && e.Err == nil {
		return err
	}
	return say.WithCode(err, codeOwn)
}

func dispatch(args []string) error {
	if len(args) > 0 {
		for _, v := range verbs {
			if v.Name == args[0] {
				return v.Run(args[1:])
			}
		}
	}
	return runTarget(args)
}
