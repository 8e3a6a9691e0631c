package netns

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checked are the sections of the catalogue of which nothing may be missing.
const checked = "ABCDER"

// TestCatalogue: each way past the boundary in testdata/catalogue.txt is named by
// a test, or ARCHITECTURE.md says why there is none.
func TestCatalogue(t *testing.T) {
	ids, what := catalogue(t)
	named := namedByTests(t)
	argued := argued(t)
	missing := 0
	for _, id := range ids {
		_, words := argued[id]
		if len(named[id]) > 0 || words {
			continue
		}
		t.Logf("%s (%s) is named by no test and not argued", id, what[id])
		if strings.Contains(checked, id[:1]) {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d are missing", missing)
	}
	for _, id := range slices.Sorted(maps.Keys(argued)) {
		if what[id] == "" {
			t.Errorf("ARCHITECTURE.md argues %s, which the catalogue has not", id)
		}
	}
	if testing.Verbose() {
		for _, id := range ids {
			fmt.Printf("  %-4s %-55s %s\n", id, what[id], strings.Join(slices.Compact(slices.Sorted(slices.Values(named[id]))), " "))
		}
	}
}

func catalogue(t *testing.T) (ids []string, what map[string]string) {
	text, err := os.ReadFile("testdata/catalogue.txt")
	if err != nil {
		t.Fatal(err)
	}
	what = map[string]string{}
	for line := range strings.Lines(string(text)) {
		id, words, _ := strings.Cut(strings.TrimSpace(line), " ")
		if id == "#" {
			continue
		}
		ids = append(ids, id)
		what[id] = words
	}
	for section, n := range map[string]int{"A": 32, "B": 20, "C": 10, "D": 26, "E": 25, "R": 12} {
		have := 0
		for _, id := range ids {
			if id[:1] == section {
				have++
			}
		}
		if have != n {
			t.Fatalf("section %s has %d entries, not %d", section, have, n)
		}
	}
	return ids, what
}

// argued are the ids that a table of ARCHITECTURE.md speaks about.
func argued(t *testing.T) map[string]string {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-ER]\d+(?:, [A-ER]\d+)*) \| (.{40,}) \|$`).FindAllStringSubmatch(string(text), -1) {
		for id := range strings.SplitSeq(m[1], ", ") {
			all[id] = m[2]
		}
	}
	return all
}

var (
	inName    = regexp.MustCompile(`^(?:Test|Fuzz)((?:[A-ER]\d+)+)(?:[A-Z].*)?$`)
	inText    = regexp.MustCompile(`^([A-ER]\d+)(?:[ ,:].*)?$`)
	inHeading = regexp.MustCompile(`^# ((?:[A-ER]\d+, )*[A-ER]\d+): `)
	inVector  = regexp.MustCompile(`^((?:[A-ER]\d+, )*[A-ER]\d+) `)
	oneID     = regexp.MustCompile(`[A-ER]\d+`)
)

// namedByTests are the tests that name each id, by package and test or file.
func namedByTests(t *testing.T) map[string][]string {
	named := map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && d.Name() != ".":
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go") && d.Name() != "catalogue_test.go":
			return ofGo(path, named)
		case filepath.Base(filepath.Dir(path)) == "testdata" && strings.HasSuffix(path, ".txt") && d.Name() != "catalogue.txt":
			return ofVectors(path, named)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return named
}

// ofGo notes the ids in the names of tests and at the beginning of texts within
// them.
func ofGo(path string, named map[string][]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
			continue
		}
		where := strings.TrimPrefix(filepath.Dir(path), "../../") + "." + f.Name.Name
		note := func(id string) { named[id] = append(named[id], where) }
		if m := inName.FindStringSubmatch(f.Name.Name); m != nil {
			for _, id := range oneID.FindAllString(m[1], -1) {
				note(id)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					if m := inText.FindStringSubmatch(s); m != nil {
						note(m[1])
					}
				}
			}
			return true
		})
	}
	return nil
}

// ofVectors notes the ids that head a section with vectors in it, or a vector.
func ofVectors(path string, named map[string][]string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	where := strings.TrimPrefix(path, "../../")
	var heading []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if m := inHeading.FindStringSubmatch(line); m != nil {
			heading = oneID.FindAllString(m[1], -1)
			continue
		}
		if line == "" {
			heading = nil // a section ends with its empty line
		}
		if line == "" || line[0] == '#' {
			continue
		}
		for _, id := range heading {
			named[id] = append(named[id], where)
		}
		heading = nil
		if m := inVector.FindStringSubmatch(line); m != nil {
			for _, id := range oneID.FindAllString(m[1], -1) {
				named[id] = append(named[id], where)
			}
		}
	}
	return nil
}
