// Package testscripts tests the built tools: what a user could type, and what
// must come out.
//
//	go test                      every tool is built first
//	SB_BIN=/usr/bin go test      the tools that are there
//	go test -run TestScripts/policy_check
//
// The last line that a run prints is the tally, N passed, N failed, N skipped.
// With SB_TALLY=FILE the same line is appended to FILE, which other kinds of
// tests may do too, and whoever started them all adds up.
package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// bin is where the tools under test are.
var bin string

// broken holds the output of the builds that failed, by tool.
var broken = map[string]string{}

var passed, failed, skipped atomic.Int64

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	if err := setup(); err != nil {
		fmt.Fprintln(os.Stderr, "testscripts:", err)
		return 1
	}
	if os.Getenv("SB_BIN") == "" {
		defer os.RemoveAll(bin)
	}
	code := m.Run()
	tally := fmt.Sprintf("%d passed, %d failed, %d skipped\n", passed.Load(), failed.Load(), skipped.Load())
	if file := os.Getenv("SB_TALLY"); file != "" {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(tally)
			f.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testscripts: write the tally:", err)
			return 1
		}
	}
	fmt.Print(tally)
	return code
}

// setup finds or builds the tools.
func setup() (err error) {
	if bin = os.Getenv("SB_BIN"); bin != "" {
		if !filepath.IsAbs(bin) {
			return fmt.Errorf("SB_BIN is %q, not an absolute path", bin)
		}
		return nil
	}
	if bin, err = os.MkdirTemp("", "sb-bin-"); err != nil {
		return err
	}
	if err := os.Chmod(bin, 0o755); err != nil { // other users run them too
		return err
	}
	mains, err := filepath.Glob("../sb-*/main.go")
	if err != nil {
		return err
	}
	build := func(name, dir string) {
		cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(bin, name), ".")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			broken[name] = fmt.Sprintf("%v\n%s", err, out)
		}
	}
	for _, file := range mains {
		build(filepath.Base(filepath.Dir(file)), filepath.Dir(file))
	}
	build("sb-guest", "../sb-vm/guest")
	return nil
}

// counted enters t into the tally.
func counted(t *testing.T) {
	t.Cleanup(func() {
		switch {
		case t.Failed():
			failed.Add(1)
		case t.Skipped():
			skipped.Add(1)
		default:
			passed.Add(1)
		}
	})
}

func TestBuild(t *testing.T) {
	counted(t)
	for tool, out := range broken {
		t.Errorf("build %s: %s", tool, out)
	}
}
