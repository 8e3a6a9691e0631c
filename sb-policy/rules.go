package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"sb/lib/manifest"
	"sb/lib/rule"
)

// readRules reads a file of rules. In a manifest they are the table [rules].
func readRules(file string) ([]rule.Source, error) {
	if strings.HasSuffix(file, ".toml") {
		m, err := manifest.Load(file)
		if err != nil {
			return nil, err
		}
		return []rule.Source{{Origin: file, Allow: m.Rules.Allow, Deny: m.Rules.Deny}}, nil
	}
	if file == "-" {
		return parseRules("stdin", os.Stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	defer f.Close()
	return parseRules(file, f)
}

// parseRules reads lines of "allow RULE", "deny RULE" or RULE alone, which allows.
// What follows a # does not count. Each rule is a source of its own, so that an
// error has its line.
func parseRules(name string, r io.Reader) (sources []rule.Source, err error) {
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		src := rule.Source{Origin: fmt.Sprintf("%s:%d", name, n)}
		word, rest := line, ""
		if i := strings.IndexAny(line, " \t"); i >= 0 {
			word, rest = line[:i], strings.TrimSpace(line[i:])
		}
		switch word {
		case "allow":
			src.Allow = []string{rest}
		case "deny":
			src.Deny = []string{rest}
		default:
			src.Allow = []string{line}
		}
		sources = append(sources, src)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read the rules from %s: %w", name, err)
	}
	return sources, nil
}
