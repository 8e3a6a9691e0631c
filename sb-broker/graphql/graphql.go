// Package graphql judges requests to GitHub's GraphQL API for a credential that is
// for one repository alone.
//
// All of them are of one path: what they are about stands in their bodies, and from
// a repository the graph leads to everything that its owner has. So a request passes
// if it is a query, begins with that repository by its name, and asks for nothing
// but what stands in github.graphql, which is what gh asks for when it lists, shows
// and checks out. What is sent on is written anew from what was judged: a server
// that would read the guest's own text in another way never sees it.
package graphql

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/formatter"
	"github.com/vektah/gqlparser/v2/parser"
)

//go:embed github.graphql
var schemaText string

// MaxBody is how large a request may be, in bytes. gh's are below 8 KiB.
const MaxBody = 64 << 10

// maxTokens bounds a document's parsing, and how deep it may be.
const maxTokens = 4000

// Judge is for the requests about one repository.
type Judge struct {
	owner, name string
	types       map[string]*ast.Definition
}

// New makes the judge for OWNER/REPO.
func New(repository string) (*Judge, error) {
	owner, name, ok := strings.Cut(repository, "/")
	if !ok || owner == "" || name == "" {
		return nil, fmt.Errorf("%q is no repository: write it as OWNER/REPO", repository)
	}
	doc, err := parser.ParseSchema(&ast.Source{Name: "github.graphql", Input: schemaText})
	if err != nil {
		return nil, fmt.Errorf("read the built-in schema: %w", err)
	}
	j := &Judge{owner: owner, name: name, types: map[string]*ast.Definition{}}
	for _, d := range doc.Definitions {
		j.types[d.Name] = d
	}
	return j, nil
}

// request is a request's body. Other members are not sent on.
type request struct {
	Query     string                     `json:"query"`
	Operation string                     `json:"operationName,omitempty"`
	Variables map[string]json.RawMessage `json:"variables,omitempty"`
}

// Body returns a request's body as it may be sent, written anew. The error says what
// it asks for that it may not; a word of it is the guest's.
func (j *Judge) Body(text []byte) ([]byte, error) {
	if len(text) > MaxBody {
		return nil, fmt.Errorf("more than %d bytes", MaxBody)
	}
	var r request
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil || in.More() {
		return nil, errors.New("no JSON of a query")
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: r.Query}, maxTokens)
	if err != nil {
		return nil, errors.New("no query")
	}
	if len(doc.Operations) == 0 {
		return nil, errors.New("no operation")
	}
	for _, op := range doc.Operations {
		w := &walk{j: j, doc: doc, op: op, variables: r.Variables, seen: map[string]bool{}}
		if err := w.operation(); err != nil {
			return nil, err
		}
	}
	var query bytes.Buffer
	formatter.NewFormatter(&query, formatter.WithCompacted()).FormatQueryDocument(doc)
	r.Query = query.String()
	return json.Marshal(r)
}

// walk goes through one operation.
type walk struct {
	j         *Judge
	doc       *ast.QueryDocument
	op        *ast.OperationDefinition
	variables map[string]json.RawMessage
	seen      map[string]bool // fragments, by name and type
}

func (w *walk) operation() error {
	if w.op.Operation != ast.Query {
		return fmt.Errorf("a %s", w.op.Operation)
	}
	for _, v := range w.op.VariableDefinitions {
		if len(v.Directives) > 0 {
			return errors.New("a directive of a variable")
		}
	}
	if len(w.op.Directives) > 0 {
		return errors.New("a directive of an operation")
	}
	return w.selections(w.op.SelectionSet, "Query")
}

// selections judges what is asked for of a type of ours.
func (w *walk) selections(set ast.SelectionSet, of string) error {
	for _, s := range set {
		var err error
		switch s := s.(type) {
		case *ast.Field:
			err = errors.Join(directives(s.Directives), w.field(s, of))
		case *ast.InlineFragment:
			err = errors.Join(directives(s.Directives), w.fragment(s.SelectionSet, of, s.TypeCondition))
		case *ast.FragmentSpread:
			err = errors.Join(directives(s.Directives), w.spread(s.Name, of))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// directives lets those through that leave something out.
func directives(list ast.DirectiveList) error {
	for _, d := range list {
		if d.Name != "include" && d.Name != "skip" {
			return fmt.Errorf("@%s", d.Name)
		}
	}
	return nil
}

func (w *walk) field(f *ast.Field, of string) error {
	if f.Name == "__typename" {
		return nil
	}
	def := w.j.types[of].Fields.ForName(f.Name)
	if def == nil {
		return fmt.Errorf("%s.%s", w.j.theirs(of), f.Name)
	}
	if of == "Query" && f.Name == "repository" {
		if err := w.root(f); err != nil {
			return err
		}
	}
	next := def.Type.Name()
	switch d := w.j.types[next]; {
	case d == nil && len(f.SelectionSet) > 0:
		return fmt.Errorf("%s.%s has no fields", w.j.theirs(of), f.Name)
	case d == nil:
		return nil
	}
	return w.selections(f.SelectionSet, next)
}

// root holds the beginning of a query to the repository.
func (w *walk) root(f *ast.Field) error {
	for _, a := range f.Arguments {
		if a.Name != "owner" && a.Name != "name" {
			return fmt.Errorf("repository by its %s", a.Name)
		}
	}
	owner, err := w.text(f.Arguments, "owner")
	if err != nil {
		return err
	}
	name, err := w.text(f.Arguments, "name")
	if err != nil {
		return err
	}
	if !strings.EqualFold(owner, w.j.owner) || !strings.EqualFold(name, w.j.name) {
		return fmt.Errorf("repository %s/%s", owner, name)
	}
	return nil
}

// text is the value of an argument that stands there once, or in a variable.
func (w *walk) text(args ast.ArgumentList, name string) (string, error) {
	no := fmt.Errorf("repository without one plain %s", name)
	var found *ast.Value
	for _, a := range args {
		if a.Name == name {
			if found != nil {
				return "", no
			}
			found = a.Value
		}
	}
	if found != nil && found.Kind == ast.Variable {
		return w.variable(found.Raw, no)
	}
	return literal(found, no)
}

// variable is the value of a variable that is defined once.
func (w *walk) variable(name string, no error) (string, error) {
	var def *ast.VariableDefinition
	for _, v := range w.op.VariableDefinitions {
		if v.Variable == name {
			if def != nil {
				return "", no
			}
			def = v
		}
	}
	if def == nil {
		return "", no
	}
	given, ok := w.variables[name]
	if !ok {
		return literal(def.DefaultValue, no)
	}
	var text *string
	if json.Unmarshal(given, &text) != nil || text == nil {
		return "", no
	}
	return *text, nil
}

func literal(v *ast.Value, no error) (string, error) {
	if v == nil || v.Kind != ast.StringValue && v.Kind != ast.BlockValue {
		return "", no
	}
	return v.Raw, nil
}

func (w *walk) spread(name, of string) error {
	var def *ast.FragmentDefinition
	for _, f := range w.doc.Fragments {
		if f.Name == name {
			if def != nil {
				return fmt.Errorf("two fragments %s", name)
			}
			def = f
		}
	}
	if def == nil || len(def.Directives) > 0 || len(def.VariableDefinition) > 0 {
		return fmt.Errorf("no plain fragment %s", name)
	}
	if key := name + " " + of; !w.seen[key] { // one that holds itself ends here
		w.seen[key] = true
		return w.fragment(def.SelectionSet, of, def.TypeCondition)
	}
	return nil
}

// fragment judges what is asked for where a value is of a type of theirs: of the
// type itself, of one that it may be, or of one that it is besides.
func (w *walk) fragment(set ast.SelectionSet, of, condition string) error {
	if condition == "" || w.j.theirs(of) == condition || w.j.mayBe(condition, of) {
		return w.selections(set, of)
	}
	for name := range w.j.types {
		if w.j.theirs(name) == condition && w.j.mayBe(of, name) {
			return w.selections(set, name)
		}
	}
	return fmt.Errorf("%s that is %s", w.j.theirs(of), condition)
}

// mayBe reports whether a value of a union or an interface may be of a type.
func (j *Judge) mayBe(abstract, name string) bool {
	d := j.types[abstract]
	return d != nil && (d.Kind == ast.Union && slices.Contains(d.Types, name) || d.Kind == ast.Interface && slices.Contains(j.types[name].Interfaces, abstract))
}

// theirs is the name that GitHub has for a type of ours.
func (j *Judge) theirs(of string) string {
	if as := j.types[of].Directives.ForName("as"); as != nil {
		return as.Arguments.ForName("name").Value.Raw
	}
	return of
}
