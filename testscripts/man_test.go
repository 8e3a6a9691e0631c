package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	flagLine = regexp.MustCompile(`(?m)^ +(?:-([a-zA-Z0-9]), )?--([a-z][a-z0-9-]*)`)
	verbLine = regexp.MustCompile(`(?m)^  ([a-z]+)\b`)
	sections = []string{"NAME", "SYNOPSIS", "DESCRIPTION", "FILES", "EXIT STATUS", "EXAMPLES", "SECURITY"}
)

// deeper are commands whose help no other help names.
var deeper = map[string][]string{"sb-run": {"sb-run undo ls", "sb-run undo verify", "sb-run undo diff", "sb-run undo restore", "sb-run undo prune"},
	"sb-broker": {"sb-broker keep --secrets=3", "sb-broker keep set", "sb-broker keep ls", "sb-broker keep check", "sb-broker keep rm", "sb-broker keep login"}}

// TestManPages holds each tool that has a page to it: the usual sections, every
// verb, and every flag of --help.
func TestManPages(t *testing.T) {
	pages, err := filepath.Glob("../sb-*/sb-*.1")
	if err != nil || len(pages) == 0 {
		t.Fatalf("there is no page: %v", err)
	}
	for _, page := range pages {
		tool := strings.TrimSuffix(filepath.Base(page), ".1")
		t.Run(tool, func(t *testing.T) {
			counted(t)
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			lint(t, page)
			rest := string(text)
			for _, s := range sections {
				_, after, ok := strings.Cut(rest, "\n.Sh "+s+"\n")
				if !ok {
					t.Fatalf("no section %s, or not in its place", s)
				}
				rest = after
			}
			if n := checkFlags(t, string(text), tool); n < 1 {
				t.Errorf("%d flags were found in --help: the test reads it wrongly", n)
			}
			for _, command := range deeper[tool] {
				checkFlags(t, string(text), strings.Fields(command)...)
			}
		})
	}
}

func lint(t *testing.T, page string) {
	out, err := exec.Command("mandoc", "-Tlint", "-W", "warning", page).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("mandoc -Tlint: %v\n%s", err, out)
	}
}

// checkFlags looks for each verb and flag that the help of the command names, and
// returns how many flags those are.
func checkFlags(t *testing.T, page string, command ...string) (n int) {
	help, err := exec.Command(filepath.Join(bin, command[0]), append(command[1:], "--help")...).Output()
	if err != nil {
		t.Fatalf("%s --help: %v", strings.Join(command, " "), err)
	}
	for _, m := range flagLine.FindAllStringSubmatch(string(help), -1) {
		n++
		for _, name := range []string{m[1], "-" + m[2]} {
			if name != "" && !regexp.MustCompile(`(?m)^\..*\bFl `+name+`( |$)`).MatchString(page) {
				t.Errorf("flag -%s of %s is not in its page", name, strings.Join(command, " "))
			}
		}
	}
	_, verbs, ok := strings.Cut(string(help), "\nverbs:\n")
	if !ok || len(command) > 1 {
		return n
	}
	for _, m := range verbLine.FindAllStringSubmatch(verbs, -1) {
		if !regexp.MustCompile(`(?m)^\.Cm ` + m[1] + `( |$)`).MatchString(page) {
			t.Errorf("verb %s is not in the synopsis", m[1])
		}
		n += checkFlags(t, page, command[0], m[1])
	}
	return n
}
