package testscripts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCounts counts the vectors of each kind, one a line of a golden file that
// some test replays, and says how many there are.
func TestCounts(t *testing.T) {
	counted(t)
	var said []string
	for _, k := range []struct {
		kind, files string
		least       int
	}{
		{"policy and name", "../lib/rule/testdata/*.txt", 600},
		{"address", "../lib/class/testdata/*.txt", 60},
		{"TLS", "../sb-gate/hello/testdata/*.txt", 150},
		{"HTTP", "../lib/http1/testdata/*.txt", 120},
		{"DNS", "../sb-dns/testdata/*.txt", 120},
		{"frame", "../sb-gate/frame/testdata/*.txt", 200},
		{"binding", "../lib/binding/testdata/*.txt", 110},
		{"credential", "../sb-broker/testdata/*.txt", 130},
		{"GraphQL", "../sb-broker/graphql/testdata/*.txt", 80},
		{"terminal", "../sb-run/vt/testdata/*.txt", 120},
	} {
		files, err := filepath.Glob(k.files)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if vectorLine(strings.TrimSpace(line)) {
					n++
				}
			}
		}
		if n < k.least {
			t.Errorf("%d %s vectors, at least %d are wanted", n, k.kind, k.least)
		}
		said = append(said, fmt.Sprintf("%d %s", n, k.kind))
	}
	fmt.Println("vectors: " + strings.Join(said, ", "))
}

// vectorLine says whether a line is a vector: no comment, and not one of the rules
// that a file begins with.
func vectorLine(line string) bool {
	switch {
	case line == "" || line[0] == '#':
		return false
	case strings.HasPrefix(line, "allow ") || strings.HasPrefix(line, "deny "):
		return strings.Contains(line, " | ")
	}
	return true
}
