// Sb-run composes a sandbox: it starts sb-dns, sb-gate and sb-vm, joins them by
// descriptors, owns their run directory and their life, and runs a command in
// the machine with the user's terminal.
//
// It parses no network byte and holds no secret. Everything it does can be done
// without it: sb-run --print=sh prints how.
//
// The runtime watches no limit on processors, for it would hold descriptors whose
// numbers a shell could use.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"errors"
	"fmt"

	"sb/lib/say"
)

func main() { say.Main("sb-run", run) }

// codeOwn is the exit code of a failure of sb-run's own, as Docker's.
const codeOwn = 125

// verbs are what sb-run does besides running a target. They are a function since one
// of them asks for their names.
func verbs() []say.Verb {
	return []say.Verb{
		{Name: "pair", Args: "NAME=dgram|stream… -- CMD…", Text: "run a command with socket pairs to pass on", Run: pair},
		{Name: "attach", Args: "--guest N [-- CMD…]", Text: "run a command in a machine by its guest stream", Run: attach},
		{Name: "agents", Args: "ls|show|edit|rm|reset|cache …", Text: "the profiles, as sb-run claude", Run: agents},
		{Name: "undo", Args: "ls|verify|diff|restore|prune …", Text: "show and put back what a run changed of its directory", Run: undoVerb},
		{Name: "accept", Args: "[--show] [--workspace DIR]", Text: "take what sandboxes wrote for themselves, .git/config say", Run: accept},
		{Name: "why", Args: "[NAME] [--json]", Text: "what a sandbox was refused, and what would allow it", Run: why},
		{Name: "init", Args: "[--profile NAME]", Text: "write a project file, .sb.toml", Run: initProject},
		{Name: "trust", Args: "[--show] [DIR]", Text: "accept a project file as it is", Run: trust},
		{Name: "fetch", Args: "[--ls] [NAME [BRANCH]]", Text: "bring the work of a sandbox's clone into its repository", Run: fetchWork},
		{Name: "secret", Args: "set|ls|check|rm|login …", Text: "keep the secrets that --secret gives to sandboxes", Run: secret},
	}
}

// run gives what failed here its exit code; a code above the filters' was meant.
func run(args []string) error {
	err := dispatch(args)
	if c := say.Code(err); c != say.CodeFailed && c != say.CodeUsage || isExit(err) {
		return err
	}
	return say.WithCode(err, codeOwn)
}

// isExit reports whether err is the answer itself, as say.Exit makes it.
func isExit(err error) bool {
	var e *say.Error
	return errors.As(err, &e) && e.Err == nil
}

func dispatch(args []string) error {
	if len(args) > 0 {
		for _, v := range verbs() {
			if v.Name == args[0] {
				return v.Run(args[1:])
			}
		}
		switch args[0] {
		case "help":
			args = []string{"--help"}
		case "pause", "resume": // else it would be looked for as an image
			return say.WithHint(fmt.Errorf("%s: a sandbox cannot be paused: nothing of it listens to anybody but the sb-run that runs it", args[0]),
				"end it, and start another when it is wanted: that is quick, from memory")
		}
	}
	return runTarget(args)
}
