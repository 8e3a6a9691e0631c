package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"sb/lib/say"
)

// target is one list of packages that the machine's apt is configured to fetch.
type target struct{ site, release, component, codename, entry string }

// suiteSources returns the lines of sources.list(5) for a suite: the mirrors
// that this machine's own apt is configured with, its updates and security
// fixes, and the keys that they are checked with.
func suiteSources(ctx context.Context, suite string) ([]string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("there is no apt here whose mirror could be taken")
	}
	all, err := targets(ctx)
	if err != nil {
		return nil, err
	}
	lines := configured(all, suite)
	if lines == nil {
		lines = derived(all, suite)
	}
	if lines == nil {
		return nil, say.WithHint(fmt.Errorf("this machine's apt is configured with no mirror of %s", suite),
			"apt-get indextargets lists what it is configured with")
	}
	return lines, nil
}

// targets asks apt. What it says of the releases (their code names) it knows
// only after an update.
func targets(ctx context.Context) ([]target, error) {
	const format = "$(SITE)\t$(RELEASE)\t$(COMPONENT)\t$(CODENAME)\t$(SOURCESENTRY)"
	for _, more := range [][]string{nil, {"--no-release-info"}} {
		args := append([]string{"indextargets", "--format", format}, more...)
		out, err := output(exec.CommandContext(ctx, "apt-get", append(args, "Created-By: Packages")...))
		if err != nil {
			return nil, err
		}
		var all []target
		for line := range strings.Lines(out) {
			if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(f) == 5 {
				all = append(all, target{f[0], f[1], f[2], f[3], f[4]})
			}
		}
		if len(all) > 0 {
			return all, nil
		}
	}
	return nil, nil
}

// configured returns lines for the suite where the machine's apt has it itself.
func configured(all []target, suite string) (lines []string) {
	hasMain := false
	for _, t := range all {
		for _, of := range []string{suite, suite + "-updates", suite + "-security", suite + "/updates"} {
			if t.release == of || t.codename == of {
				hasMain = hasMain || of == suite
				lines = addSource(lines, t, t.release)
			}
		}
	}
	if !hasMain {
		return nil
	}
	return lines
}

// derived takes the mirrors of the machine's own suite for another one. Those
// that only work for it, unstable ones, have neither updates nor security fixes.
func derived(all []target, suite string) (lines []string) {
	rolling := slices.Contains([]string{"sid", "unstable", "experimental", "rc-buggy"}, suite)
	for _, t := range all {
		_, isUpdates := strings.CutSuffix(t.release, "-updates")
		_, isSecurity := strings.CutSuffix(t.release, "-security")
		switch {
		case t.component != "main":
		case isSecurity && !rolling:
			lines = addSource(lines, t, suite+"-security")
		case isUpdates && !rolling:
			lines = addSource(lines, t, suite+"-updates")
		case !isSecurity && !isUpdates && !strings.Contains(t.release, "-") && strings.HasSuffix(t.site, "/debian"):
			lines = addSource(lines, t, suite)
		}
	}
	return lines
}

func addSource(lines []string, t target, release string) []string {
	options := ""
	if key := signedBy(t.entry); key != "" {
		options = "[signed-by=" + key + "] "
	}
	line := "deb " + options + t.site + " " + release + " " + t.component
	if slices.Contains(lines, line) {
		return lines
	}
	return append(lines, line)
}

// signedBy finds the keys that the entry of apt's sources says. entry is
// FILE:N, where N counts lines in a .list file and entries in a .sources file.
// Where the entry says nothing, or holds the key itself, the keys that apt trusts for
// everything must do.
func signedBy(entry string) string {
	i := strings.LastIndexByte(entry, ':')
	if i < 0 {
		return ""
	}
	n, err := strconv.Atoi(entry[i+1:])
	if err != nil {
		return ""
	}
	text, err := os.ReadFile(entry[:i])
	if err != nil {
		return ""
	}
	find := signedByLine
	if strings.HasSuffix(entry[:i], ".sources") {
		find = signedByEntry
	}
	key := find(string(text), n)
	if !strings.HasPrefix(key, "/") || strings.ContainsAny(key, " \t,]") {
		return ""
	}
	return key
}

// deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] http://… (sources.list(5))
func signedByLine(text string, n int) string {
	lines := strings.Split(text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	_, options, _ := strings.Cut(lines[n-1], "[")
	options, _, _ = strings.Cut(options, "]")
	for _, o := range strings.Fields(options) {
		if key, ok := strings.CutPrefix(strings.ToLower(o[:min(len(o), 10)])+o[min(len(o), 10):], "signed-by="); ok {
			return key
		}
	}
	return ""
}

// Entries of a deb822 file are separated by empty lines; comments are no entry.
func signedByEntry(text string, n int) string {
	entry, inside := 0, false
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := s.Text()
		switch {
		case strings.TrimSpace(line) == "":
			inside = false
			continue
		case strings.HasPrefix(line, "#"):
			continue
		case !inside:
			entry, inside = entry+1, true
		}
		name, value, _ := strings.Cut(line, ":")
		if entry == n && strings.EqualFold(name, "Signed-By") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
