// Darwincheck type-checks packages for macOS where there is none: no SDK and no
// C compiler, cgo included, whose C names are taken on trust.
//
//	darwincheck [PACKAGE…]
//
// Packages are as for go list, in the module of the current directory; ./... if
// none is named. Their tests are checked with them. Each fault is a line on
// stdout with file, line and column. Exit code 0: clean, 1: faults, 2: it could
// not look.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The machine that the packages are checked for.
const goos, goarch = "darwin", "arm64"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{"./..."}
	}
	packages, err := list(args)
	if err != nil {
		fmt.Fprintf(stderr, "darwincheck: error: %v\n", err)
		return 2
	}
	c := checker{done: map[string]*types.Package{"unsafe": types.Unsafe}, seen: map[string]bool{}, out: stdout}
	for _, p := range packages {
		c.check(p)
	}
	switch {
	case c.looked == 0:
		fmt.Fprintf(stderr, "darwincheck: error: %s: no package has a file for %s/%s\n", strings.Join(args, " "), goos, goarch)
		return 2
	case c.faults > 0:
		return 1
	}
	return 0
}

// listed is a package as go list describes it.
type listed struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	ImportMap  map[string]string
	DepOnly    bool
	Standard   bool
	ForTest    string
	Module     *struct{ GoVersion string }
	Error      *struct{ Pos, Err string }
}

// list asks go list for packages, dependencies first. Without -compiled it only
// picks files by their build constraints and runs no C compiler.
func list(patterns []string) ([]*listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-test", "-json"}, patterns...)...)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w\n%s", strings.Join(patterns, " "), err, errs.Bytes())
	}
	var all []*listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		all = append(all, p)
	}
}

// checker checks packages one after the other; each finds what it imports among
// those before it.
type checker struct {
	done   map[string]*types.Package
	seen   map[string]bool // what was said: a package and its test have files in common
	out    io.Writer
	faults int
	looked int // packages that were asked for and have files
}

func (c *checker) check(p *listed) {
	if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the main of a test is made when it is built
		return
	}
	// Of a dependency only what it exports matters.
	asked := !p.DepOnly && !p.Standard
	report := func(err error) {
		if asked {
			c.report(err)
		}
	}
	if p.Error != nil {
		report(errors.New(strings.TrimPrefix(p.Error.Pos+": "+p.Error.Err, ": ")))
	}
	files := append(p.GoFiles, p.CgoFiles...)
	if len(files) == 0 {
		return // who imports it is told that it was not found
	}
	if asked {
		c.looked++
	}
	fset := token.NewFileSet()
	var trees []*ast.File
	for _, name := range files {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		tree, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			report(err)
		}
		if tree != nil {
			trees = append(trees, tree)
		}
	}
	conf := types.Config{
		Importer:         importer{c.done, p.ImportMap},
		FakeImportC:      true,
		IgnoreFuncBodies: !asked,
		Sizes:            types.SizesFor("gc", goarch),
		Error:            report,
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		conf.GoVersion = "go" + p.Module.GoVersion
	}
	pkg, _ := conf.Check(plainPath(p.ImportPath), fset, trees, nil)
	c.done[p.ImportPath] = pkg
}

// plainPath is the path of a package without the mark of the test it is built for.
func plainPath(path string) string {
	path, _, _ = strings.Cut(path, " ")
	return path
}

// report writes a fault, once.
func (c *checker) report(err error) {
	text := err.Error()
	var te types.Error
	var se scanner.ErrorList
	switch {
	case errors.As(err, &te):
		text = at(te.Fset.Position(te.Pos), te.Msg)
	case errors.As(err, &se) && len(se) > 0:
		text = at(se[0].Pos, se[0].Msg)
	}
	if c.seen[text] {
		return
	}
	c.seen[text] = true
	c.faults++
	fmt.Fprintln(c.out, text)
}

// at is a message with its place, named from the current directory if it lies
// beneath it.
func at(pos token.Position, text string) string {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, pos.Filename); err == nil && filepath.IsLocal(rel) {
			pos.Filename = rel
		}
	}
	return pos.String() + ": " + text
}

// importer finds a package among those that were checked.
type importer struct {
	done  map[string]*types.Package
	names map[string]string // import path as written, to the package it means
}

func (i importer) Import(path string) (*types.Package, error) {
	if real, ok := i.names[path]; ok {
		path = real
	}
	if p := i.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s was not found", path)
}
