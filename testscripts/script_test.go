package testscripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/*.txtar. The first word of a script's name is the
// tool. Each has the tools first on its PATH and a home of its own.
func TestScripts(t *testing.T) {
	testscript.RunT(counting{t}, testscript.Params{
		Dir:                "testdata",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("SB_HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"await": await,
		},
	})
}

// counting is a *testing.T that enters each script into the tally.
type counting struct{ *testing.T }

func (t counting) Verbose() bool { return testing.Verbose() }

func (t counting) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) {
		counted(t)
		f(counting{t})
	})
}

// exits CODE PROGRAM ARGS… is exec for a program that must end with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS…")
	}
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// await PATTERN FILE waits until FILE is there and has a line that matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await PATTERN FILE")
	}
	pattern, err := regexp.Compile(`(?m)` + args[0])
	ts.Check(err)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[1]))
		if err == nil && pattern.Match(text) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s did not come into %s in 20 seconds; it is:\n%s", args[0], args[1], text)
		}
	}
}
