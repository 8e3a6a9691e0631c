package testscripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)(?:/([^`]+))?`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// TestDocs: a test that a document names as a proof is there, and so is its case.
func TestDocs(t *testing.T) {
	counted(t)
	where := map[string]string{} // the file that a test is in
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			where[m[1]] += string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, doc := range []string{"README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "BENCHMARKS.md"} {
		text, err := os.ReadFile(filepath.Join("..", doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			named++
			file, ok := where[m[1]]
			if !ok {
				t.Errorf("%s: there is no %s", doc, m[1])
				continue
			}
			if sub := strings.TrimSuffix(m[2], "…"); !strings.Contains(file, sub) {
				t.Errorf("%s: %s has no case %q", doc, m[1], sub)
			}
		}
	}
	if named < 5 {
		t.Errorf("%d tests are named: this test reads the documents wrongly", named)
	}
}
