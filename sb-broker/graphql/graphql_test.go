package graphql

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

func testJudge(t testing.TB) *Judge {
	t.Helper()
	j, err := New("own/one")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// vectors are the bodies of testdata/queries.txt, and what becomes of each.
func vectors(t testing.TB) (all [][2]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/queries.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), " | ")
		if line[0] == '#' {
			continue
		}
		if len(f) != 3 {
			t.Fatalf("%q is no vector", line)
		}
		query, _ := json.Marshal(f[0])
		body := `{"query":` + string(query) + `}`
		if f[1] != "-" {
			body = `{"query":` + string(query) + `,"variables":` + f[1] + `}`
		}
		all = append(all, [2]string{body, f[2]})
	}
	return all
}

// TestE14Queries: every vector of testdata/queries.txt. What passes is judged the same
// way again.
func TestE14Queries(t *testing.T) {
	j := testJudge(t)
	for _, v := range vectors(t) {
		out, err := j.Body([]byte(v[0]))
		if v[1] == "ok" {
			if again, more := j.Body(out); err != nil || more != nil || string(again) != string(out) {
				t.Errorf("%s: %v, then %v", v[0], err, more)
			}
		} else if err == nil || !strings.Contains(err.Error(), v[1]) {
			t.Errorf("%s: %v, want %s", v[0], err, v[1])
		}
	}
}

// TestE14Bodies: what is sent is what was judged, whatever else the body says.
func TestE14Bodies(t *testing.T) {
	j := testJudge(t)
	const query = `"query":"{viewer{login}}"`
	for body, want := range map[string]string{
		`{` + query + `}`: "", `{` + query + `,"operationName":"a"}`: "", `{` + query + `,"variables":null}`: "",
		`{"query":"{node(id:\"x\"){id}}",` + query + `}`:                     "", // the last one, alone, is sent
		`{` + query + `,"Query":"{node(id:\"x\"){id}}"}`:                     "Query.node",
		`{` + query + `,"extensions":{"persistedQuery":{"sha256Hash":"x"}}}`: "no JSON", `{` + query + `,"id":"x"}`: "no JSON",
		`[{` + query + `}]`: "no JSON", `{` + query + `}{`: "no JSON", `{"query":1}`: "no JSON", `null`: "no operation", ``: "no JSON",
		`{` + query + strings.Repeat(" ", MaxBody) + `}`:                                        "more than 65536 bytes",
		`{"query":"{` + strings.Repeat("a", maxTokens) + `}"}`:                                  "Query.aaaa",
		`{"query":"{viewer{` + strings.Repeat("login ", maxTokens) + `}}"}`:                     "no query",
		`{"query":"` + strings.Repeat("{a", 1500) + strings.Repeat("}", 1500) + `"}`:            "no query",
		`{"query":"{...f} fragment f on Query{...f ...g} fragment g on Query{...f ...g ...f}"}`: "",
	} {
		out, err := j.Body([]byte(body))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) || strings.Contains(string(out), "node") {
			t.Errorf("%.100s: %.100s, %v, want %q", body, out, err, want)
		}
	}
}

// TestSchema: every field of the schema leads to a type of it, or to a scalar; names
// that it does not define are those of GitHub's scalars and no others.
func TestSchema(t *testing.T) {
	scalars := map[string]bool{"ID": true, "Int": true, "String": true, "Boolean": true, "URI": true, "Time": true}
	j := testJudge(t)
	for name, d := range j.types {
		for _, f := range d.Fields {
			if n := f.Type.Name(); j.types[n] == nil && !scalars[n] {
				t.Errorf("%s.%s is of a type %s", name, f.Name, n)
			}
		}
		for _, member := range append(d.Types, d.Interfaces...) {
			if j.types[member] == nil {
				t.Errorf("%s: there is no %s", name, member)
			}
		}
	}
	if _, err := New("own"); err == nil {
		t.Error("a repository without a name")
	}
}

// FuzzBody: whatever passes is a query that begins with the repository and nothing
// else, as a parser reads what is sent, and is judged the same way again.
func FuzzBody(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v[0]))
	}
	j := testJudge(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := j.Body(text)
		if err != nil {
			return
		}
		if again, err := j.Body(out); err != nil || string(again) != string(out) {
			t.Fatalf("%q is sent as %q, which is judged: %v, %q", text, out, err, again)
		}
		var r request
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatal(err)
		}
		doc, perr := parser.ParseQuery(&ast.Source{Input: r.Query})
		if perr != nil {
			t.Fatal(perr)
		}
		for _, op := range doc.Operations {
			for _, s := range op.SelectionSet {
				if field, ok := s.(*ast.Field); ok && (op.Operation != ast.Query || j.types["Query"].Fields.ForName(field.Name) == nil && field.Name != "__typename") {
					t.Fatalf("%q passes with %s", text, field.Name)
				}
			}
		}
	})
}
