package testscripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sb/lib/reason"
)

// TestBoundsTable: each row of the table of bounds names tests that are there,
// and reason codes that are some.
func TestBoundsTable(t *testing.T) {
	rows := boundsRows(t)
	if len(rows) < 40 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	there := testsOfTree(t)
	name := regexp.MustCompile("^`([a-z0-9-]+\\.Test[A-Za-z0-9]+)`$")
	for _, cells := range rows {
		if len(cells) != 5 || cells[0] == "" || cells[1] == "" || cells[2] == "" {
			t.Errorf("a row of %d cells: %q", len(cells), cells)
			continue
		}
		for code := range strings.SplitSeq(cells[3], ", ") {
			if _, ok := reason.Explain(reason.Code(code)); !ok && code != "-" {
				t.Errorf("%s: %q is no reason", cells[0], code)
			}
		}
		for test := range strings.SplitSeq(cells[4], ", ") {
			if m := name.FindStringSubmatch(test); m == nil || !there[m[1]] {
				t.Errorf("%s: there is no test %s", cells[0], test)
			}
		}
	}
	if there["testscripts.TestThatIsNotThere"] || !there["testscripts.TestBoundsTable"] {
		t.Error("tests are not told from what is none")
	}
}

// boundsRows are the table's rows, each its cells.
func boundsRows(t *testing.T) (rows [][]string) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Bounds\n")
	if !ok {
		t.Fatal("there is no section Bounds")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| what |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		rows = append(rows, cells)
	}
	return rows
}

// testsOfTree are all tests, by the name of their directory and their own.
func testsOfTree(t *testing.T) map[string]bool {
	all := map[string]bool{}
	is := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Abs(filepath.Dir(path))
		for _, m := range is.FindAllSubmatch(text, -1) {
			all[filepath.Base(dir)+"."+string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
