// Tally runs go test on groups of packages, one group after the other, shows
// what failed and what was skipped, and ends with the line
//
//	N passed, N failed, N skipped
//
// A test with subtests is counted by those. The exit code is 1 if one failed.
//
//	tally [-v] GROUP…        a group is packages and flags of go test, in one word
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// event is one of `go test -json` (cmd/test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type counts struct{ passed, failed, skipped int }

func main() {
	var all counts
	for _, group := range os.Args[1:] {
		began := time.Now()
		c, err := run(strings.Fields(group))
		all.passed += c.passed
		all.failed += c.failed
		all.skipped += c.skipped
		if err != nil && c.failed == 0 {
			fmt.Printf("FAIL %s: %v\n", group, err)
			all.failed++
		}
		fmt.Printf("%-40s %4d passed, %d failed, %d skipped in %v\n", group, c.passed, c.failed, c.skipped, time.Since(began).Round(time.Second))
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", all.passed, all.failed, all.skipped)
	if all.failed > 0 {
		os.Exit(1)
	}
}

// run runs go test on one group.
func run(args []string) (c counts, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return c, err
	}
	if err := cmd.Start(); err != nil {
		return c, err
	}
	t := &tests{output: map[string][]string{}, parents: map[string]bool{}}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // the output of a build
			continue
		}
		t.take(e, &c)
	}
	return c, cmd.Wait()
}

type tests struct {
	output  map[string][]string // what a test printed, until its end
	parents map[string]bool     // tests that have subtests
}

func (t *tests) take(e event, c *counts) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "run":
		if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
			t.parents[e.Package+"\x00"+e.Test[:i]] = true
		}
	case "output", "build-output":
		if e.Test == "" && tableLine(e.Output) || strings.HasPrefix(e.Output, "vectors: ") {
			fmt.Print(e.Output)
		}
		t.output[key] = append(t.output[key], e.Output)
	case "build-fail":
		fmt.Print(strings.Join(t.output[key], ""))
	case "pass", "fail", "skip":
		t.end(e, key, c)
	}
}

// tableLine is one of what a package prints beside its tests, such as the table
// of live cases. (The number of vectors is what a test prints.)
func tableLine(s string) bool {
	return strings.HasPrefix(s, "  ") || strings.HasPrefix(s, "live cases")
}

func (t *tests) end(e event, key string, c *counts) {
	defer delete(t.output, key)
	said := strings.Join(t.output[key], "")
	if e.Test == "" {
		if e.Action == "fail" {
			fmt.Printf("FAIL %s\n%s", e.Package, said)
		}
		return
	}
	if e.Action != "pass" {
		fmt.Printf("%s %s %s\n%s", strings.ToUpper(e.Action), e.Package, e.Test, said)
	}
	if t.parents[key] && e.Action != "fail" {
		return
	}
	switch e.Action {
	case "pass":
		c.passed++
	case "skip":
		c.skipped++
	case "fail":
		c.failed++
	}
}
