package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// refusal is a branch that refuses.
type refusal struct {
	file string // from the root of the tree
	line int
	cond string // its condition, as written
	code string // the reason it names
	text []byte // the whole file
	from int    // where the condition stands in it
	to   int
}

func (r refusal) where() string { return r.file + ":" + strconv.Itoa(r.line) }

// key names a branch in equivalent.txt, whatever its line.
func (r refusal) key() string { return r.file + " " + r.cond }

// without is the file with the condition never true.
func (r refusal) without() []byte {
	out := append([]byte{}, r.text[:r.from]...)
	out = append(out, "("+r.cond+") && never()"...)
	out = append(out, r.text[r.to:]...)
	// A function, since vet and the compiler know what "false" makes unreachable.
	return append(out, "\nfunc never() bool { return len(\"\") > 0 }\n"...)
}

// notRefusals are reasons of things that happen without a refusal.
var notRefusals = map[string]bool{
	"AllowRule": true, "Done": true, "Reset": true, "GateStart": true, "GateEnd": true, "NoAnswer": true, "NoSuchName": true,
	"ConnectFailed": true, "ConnectRefused": true, "ConnectTimeout": true, "ConnectUnreachable": true, "Explain": true, "Code": true,
}

// find returns the refusals of a package, in the order of the source: byError, those
// that say what is wrong in words are some too.
func find(pkg string, byError bool) (all []refusal, err error) {
	files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_darwin.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		add := func(cond ast.Expr, body []ast.Stmt) {
			code := refuses(body)
			if code == "" && byError && saysError(body) {
				code = "an error"
			}
			if cond == nil || code == "" {
				return
			}
			from, to := set.Position(cond.Pos()), set.Position(cond.End())
			all = append(all, refusal{file: file, line: from.Line, cond: string(text[from.Offset:to.Offset]), code: code, text: text, from: from.Offset, to: to.Offset})
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				add(n.Cond, n.Body.List)
			case *ast.SwitchStmt:
				if n.Tag == nil {
					for _, s := range n.Body.List {
						for _, cond := range s.(*ast.CaseClause).List {
							add(cond, s.(*ast.CaseClause).Body)
						}
					}
				}
			}
			return true
		})
	}
	return all, nil
}

// refuses returns the reason of a refusal that a branch itself names.
func refuses(body []ast.Stmt) (code string) {
	for _, s := range body {
		switch s.(type) {
		case *ast.IfStmt, *ast.SwitchStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SelectStmt, *ast.TypeSwitchStmt, *ast.BlockStmt:
			continue // these are branches of their own
		}
		ast.Inspect(s, func(n ast.Node) bool {
			if _, ok := n.(*ast.FuncLit); ok {
				return false
			}
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "reason" && !notRefusals[sel.Sel.Name] && code == "" {
				code = sel.Sel.Name
			}
			return true
		})
	}
	return code
}

// saysError says whether a branch itself returns an error that it makes.
func saysError(body []ast.Stmt) (says bool) {
	for _, s := range body {
		if ret, ok := s.(*ast.ReturnStmt); ok {
			ast.Inspect(ret, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					x, _ := sel.X.(*ast.Ident)
					says = says || x != nil && (x.Name == "fmt" && sel.Sel.Name == "Errorf" || x.Name == "errors" && sel.Sel.Name == "New")
				}
				return true
			})
		}
	}
	return says
}
