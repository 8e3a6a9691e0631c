// Mutate takes each refusal of the gate, the resolver, the broker and the rules out in
// turn and runs the tests that cover it: one of them must fail. A refusal is a branch
// (an if, or a case of a switch without a tag) that names a reason code of a
// refusal, or in lib/binding one that returns an error; taken out, its condition is
// never true.
//
//	mutate [-run PATTERN] [PACKAGE…]      PATTERN matches FILE:LINE
//
// What survives is listed and the exit code is 1, but for the lines of
// equivalent.txt, where another check behind the one taken out refuses the same:
// each says which, and one that no longer survives is an error too.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

//go:embed equivalent.txt
var equivalentText string

// tests is what each package is covered by: its own tests, then those that use it.
var tests = []struct{ pkg, by []string }{
	{[]string{"lib/rule"}, []string{"./lib/rule"}},
	{[]string{"sb-gate/frame"}, []string{"./sb-gate/frame", "./sb-gate"}},
	{[]string{"sb-gate/hello"}, []string{"./sb-gate/hello", "./sb-gate"}},
	{[]string{"lib/http1"}, []string{"./lib/http1", "./sb-gate", "./sb-broker"}},
	{[]string{"lib/binding"}, []string{"./lib/binding"}},
	{[]string{"sb-broker"}, []string{"./sb-broker"}},
	{[]string{"sb-broker/keep"}, []string{"./sb-broker/keep"}},
	{[]string{"sb-dns"}, []string{"./sb-dns"}},
	{[]string{"sb-gate"}, []string{"./sb-gate"}},
}

func main() {
	pattern := flag.String("run", "", "take only those out whose FILE:LINE matches")
	flag.Parse()
	survivors, err := run(regexp.MustCompile(*pattern), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

func run(pattern *regexp.Regexp, only []string) (bad int, err error) {
	dir, err := os.MkdirTemp("", "sb-mutate-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	known := equivalents()
	var all, caught, equivalent int
	for _, t := range tests {
		if len(only) > 0 && !contains(only, t.pkg[0]) {
			continue
		}
		refusals, err := find(t.pkg[0], t.pkg[0] == "lib/binding")
		if err != nil {
			return 0, err
		}
		results := make([]result, len(refusals))
		var wg sync.WaitGroup
		slots := make(chan struct{}, 2)
		for i, r := range refusals {
			if !pattern.MatchString(r.where()) {
				continue
			}
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				results[i] = try(filepath.Join(dir, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.pkg[0], "/", "-"), i)), r, t.by)
			})
		}
		wg.Wait()
		for i, r := range refusals {
			res := results[i]
			if res.took == 0 {
				continue
			}
			all++
			why, isKnown := known[r.key()]
			delete(known, r.key())
			switch {
			case res.err != nil:
				return 0, fmt.Errorf("%s: %w", r.where(), res.err)
			case res.caught != "" && isKnown:
				bad++
				fmt.Printf("STALE    %s %s: %s fails without it; take it out of equivalent.txt\n", r.where(), r.code, res.caught)
			case res.caught != "":
				caught++
				fmt.Printf("caught   %s %s by %s\n", r.where(), r.code, res.caught)
			case isKnown:
				equivalent++
				fmt.Printf("same     %s %s: %s\n", r.where(), r.code, why)
			default:
				bad++
				fmt.Printf("SURVIVED %s %s: %s\n", r.where(), r.code, r.cond)
			}
		}
	}
	if len(only) == 0 && pattern.String() == "" {
		for k := range known {
			bad++
			fmt.Printf("STALE    equivalent.txt: there is no %q\n", k)
		}
	}
	fmt.Printf("%d refusals taken out, %d caught, %d refused by another check, %d wrong\n", all, caught, equivalent, bad)
	return bad, nil
}

type result struct {
	caught string // the test that failed
	took   time.Duration
	err    error
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try runs the tests with one refusal taken out.
func try(dir string, r refusal, by []string) (res result) {
	began := time.Now()
	defer func() { res.took = time.Since(began) }()
	if res.err = os.MkdirAll(dir, 0o700); res.err != nil {
		return res
	}
	changed := filepath.Join(dir, filepath.Base(r.file))
	if res.err = os.WriteFile(changed, r.without(), 0o600); res.err != nil {
		return res
	}
	abs, _ := filepath.Abs(r.file)
	overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{abs: changed}})
	list := filepath.Join(dir, "overlay.json")
	if res.err = os.WriteFile(list, overlay, 0o600); res.err != nil {
		return res
	}
	for _, pkg := range by {
		binary := filepath.Join(dir, "test")
		if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-o", binary, pkg).CombinedOutput(); err != nil {
			res.err = fmt.Errorf("does not build: %w\n%s", err, out)
			return res
		}
		cmd := exec.Command(binary, "-test.failfast", "-test.timeout=3m")
		cmd.Dir = pkg
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		res.caught = "a panic or the time limit"
		if all := failed.FindAllSubmatch(out, -1); all != nil {
			res.caught = string(all[len(all)-1][1])
		}
		return res
	}
	return res
}

// equivalents reads the branches whose absence changes nothing: lines of
// "FILE CONDITION # the check that refuses the same".
func equivalents() map[string]string {
	all := map[string]string{}
	for l := range strings.Lines(equivalentText) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		key, why, _ := strings.Cut(l, " # ")
		all[key] = why
	}
	return all
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if strings.Trim(a, "./") == s {
			return true
		}
	}
	return false
}
