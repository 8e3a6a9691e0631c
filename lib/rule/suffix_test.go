package rule

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

var update = flag.Bool("update", false, "write suffixes/*.txt anew from golang.org/x/net/publicsuffix")

const suffixHeader = `# The Public Suffix List, https://publicsuffix.org/list/, as golang.org/x/net/publicsuffix has it.
# Subject to the Mozilla Public License 2.0, https://mozilla.org/MPL/2.0/.
# Written by: go test ./rule -run TestSuffixList -update

`

// upstreamSuffixes are the rules of the list, which that package has in its own tests.
func upstreamSuffixes(t *testing.T) (icann, private []string) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/net").Output()
	if err != nil {
		t.Fatalf("find golang.org/x/net: %v", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "publicsuffix", "table_test.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var all []string
	ast.Inspect(file, func(node ast.Node) bool {
		lit, ok := node.(*ast.BasicLit)
		switch {
		case ok && lit.Kind == token.INT:
			n, _ = strconv.Atoi(lit.Value)
		case ok && lit.Kind == token.STRING:
			s, err := strconv.Unquote(lit.Value)
			if err == nil {
				s, err = idna.ToASCII(s)
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		return true
	})
	if n < 5000 || len(all) < n+1000 {
		t.Fatalf("%d rules, %d of them ICANN's: the list is read wrongly", len(all), n)
	}
	return all[:n:n], all[n:]
}

func TestSuffixList(t *testing.T) {
	icann, private := upstreamSuffixes(t)
	for _, f := range []struct {
		file, have string
		want       []string
	}{{"suffixes/icann.txt", icannSuffixes, icann}, {"suffixes/private.txt", privateSuffixes, private}} {
		text := suffixHeader
		slices.Sort(f.want)
		for _, s := range f.want {
			if strings.Contains(s, ".") {
				text += s + "\n"
			}
		}
		if *update {
			if err := os.WriteFile(f.file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if f.have != text {
			t.Errorf("%s is not the list of golang.org/x/net: write it with -update", f.file)
		}
	}
}

// Each rule of the list, what lies below and above it: a wildcard is judged as
// the package would.
func TestSuffixesAgreeWithUpstream(t *testing.T) {
	icann, private := upstreamSuffixes(t)
	refused, warned := 0, 0
	for _, s := range append(icann, private...) {
		s = strings.TrimPrefix(strings.TrimPrefix(s, "!"), "*.")
		_, parent, _ := strings.Cut(s, ".")
		for _, s := range []string{s, "x." + s, "y.x." + s, parent} {
			if s == "" || privateUse[s] {
				continue
			}
			public, isICANN := publicsuffix.PublicSuffix(s)
			r := Rule{kind: suffix, name: Name{s}}
			f := r.checkSuffix()
			if want := public == s && (isICANN || !strings.Contains(s, ".")); (f != nil) != want {
				t.Fatalf("*.%s: refused %v, want %v", s, f != nil, want)
			}
			if want := public == s && f == nil; (r.warning != "") != want {
				t.Fatalf("*.%s: warning %q, want one: %v", s, r.warning, want)
			}
			if f != nil {
				refused++
			}
			if r.warning != "" {
				warned++
			}
		}
	}
	if refused < 5000 || warned < 2000 {
		t.Errorf("%d refused, %d warned: too few", refused, warned)
	}
}
