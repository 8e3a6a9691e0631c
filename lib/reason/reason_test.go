package reason

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// constants returns the value of every constant of type Code in the source, by
// its name.
func constants(t *testing.T) map[string]Code {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Code{}
	for _, d := range file.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if typ, ok := v.Type.(*ast.Ident); !ok || typ.Name != "Code" {
				t.Errorf("constant %s is no Code", v.Names[0].Name)
				continue
			}
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all[v.Names[0].Name] = Code(text)
		}
	}
	return all
}

func TestEveryCodeHasOneEntry(t *testing.T) {
	consts := constants(t)
	if len(consts) < 50 {
		t.Fatalf("%d constants were found: the test reads the source wrongly", len(consts))
	}
	byCode := map[Code]string{}
	for name, c := range consts {
		if other, ok := byCode[c]; ok {
			t.Errorf("%s and %s are both %q", name, other, c)
		}
		byCode[c] = name
		if e, ok := Explain(c); !ok || e.Code != c {
			t.Errorf("%s (%q) has no entry", name, c)
		}
	}
	seen := map[Code]bool{}
	for _, e := range entries {
		if byCode[e.Code] == "" {
			t.Errorf("the entry %q has no constant", e.Code)
		}
		if seen[e.Code] {
			t.Errorf("%q has two entries", e.Code)
		}
		seen[e.Code] = true
	}
	if _, ok := Explain("no-such-code"); ok {
		t.Error("a code that is none is explained")
	}
}

func TestWording(t *testing.T) {
	code := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	sentence := regexp.MustCompile(`^[A-Z].*[.]$`)
	for _, e := range entries {
		if !code.MatchString(string(e.Code)) || len(e.Code) > 40 {
			t.Errorf("%q is no code: lower-case words with - between, 40 bytes at most", e.Code)
		}
		if !sentence.MatchString(e.What) || e.Fix != "" && !sentence.MatchString(e.Fix) {
			t.Errorf("%s: What and Fix are sentences: %q, %q", e.Code, e.What, e.Fix)
		}
		for _, text := range []string{e.What, e.Fix} {
			if strings.TrimSpace(text) != text || strings.Contains(text, "  ") || strings.Contains(text, "\n") {
				t.Errorf("%s: blanks in %q", e.Code, text)
			}
		}
	}
}

func TestAllIsSorted(t *testing.T) {
	all := All()
	if len(all) != len(entries) || !sort.SliceIsSorted(all, func(i, j int) bool { return all[i].Code < all[j].Code }) {
		t.Errorf("%d of %d entries, or not sorted", len(all), len(entries))
	}
	all[0].What = "changed"
	if All()[0].What == "changed" {
		t.Error("All hands out its own table")
	}
}

// TestCredentialsFix: who is refused something at a name with a credential is told what
// to do about it; what is only noted needs nothing.
func TestCredentialsFix(t *testing.T) {
	for _, code := range []Code{SecretUnavailable, SecretUnusable, CredentialScope, CredentialMint, MethodOverride, GraphQLScope, HeaderTwice, HTTPPath,
		HostMisdirected, EchoUnreadable, UpstreamUnverified, UpstreamFailed, GuestHandshake, BrokerAbsent, BrokerDied, PlaceholderElsewhere, MemoryBudget} {
		if e, ok := Explain(code); !ok || e.What == "" || e.Fix == "" {
			t.Errorf("%s: %+v", code, e)
		}
	}
	if e, ok := Explain(CredentialUsed); !ok || e.Fix != "" {
		t.Errorf("%s: %+v", CredentialUsed, e)
	}
}
