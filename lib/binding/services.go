package binding

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sb/lib/rule"

	"github.com/BurntSushi/toml"
)

//go:embed services.toml
var servicesText string

// Services is what is built in: the bindings, the shapes of placeholders, and
// further variables for the same placeholder.
type Services struct {
	Bindings []Binding         `toml:"binding"`
	Scoped   []Binding         `toml:"scoped"`  // for a part of a service alone, {} in their paths
	Shapes   map[string]string `toml:"shapes"`  // by secret
	Aliases  map[string]string `toml:"aliases"` // other name of a variable: the binding's
}

// BuiltIn returns what is built in. A binding of it without hosts is one whose
// hosts the user must name.
func BuiltIn() *Services {
	s := &Services{}
	if _, err := toml.Decode(servicesText, s); err != nil {
		panic("the built-in services: " + err.Error()) // a test reads them all
	}
	return s
}

// Find returns the bindings that a user means by a word: NAME, NAME@HOST or, where a
// service has parts, NAME:OWNER/REPO. own
// are those of the configuration, checked; for a name that has some, what is
// built in does not count. With a host the name's bindings are for that host
// alone; a name that nothing is known of is then a bearer token in a variable of
// that name.
func (s *Services) Find(word string, own []Binding) ([]Binding, error) {
	name, host, atHost := strings.Cut(word, "@")
	if name == "" {
		return nil, fmt.Errorf("it has no name: write the one that it is kept under, perhaps with a host, as %s or NAME@HOST", s.names()[0])
	}
	if part, _, ok := strings.Cut(name, ":"); ok {
		return s.scoped(part, word[len(part)+1:])
	}
	if !ValidSecret(name) {
		return nil, fmt.Errorf("%q is no name of a secret: lower-case letters, digits, -, _ and ., at most %d", name, MaxName)
	}
	found := s.of(name, own)
	if atHost {
		n, err := rule.ParseName(host)
		if err != nil {
			return nil, fmt.Errorf("%w; behind the @ is the name of a host alone, without a scheme, a port or a path: it holds for every port", err)
		}
		return atOnly(name, n.String(), found)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("where %s goes is not known: name its host, as %s@HOST, or write a [[binding]] for it (built in: %s)", name, name, strings.Join(s.names(), ", "))
	case len(found[0].Hosts) == 0:
		return nil, fmt.Errorf("%s has no host of its own: name it, as %s@HOST, or write a [[binding]] for it", name, name)
	}
	return found, nil
}

var repository = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]*[A-Za-z0-9_-]$`)

// isRepository reports whether s is OWNER/REPO, as GitHub has them.
func isRepository(s string) bool {
	return repository.MatchString(s) && !strings.HasSuffix(strings.ToLower(s), ".git") && len(s) <= 200
}

// scoped returns what lets a secret be used for one repository.
func (s *Services) scoped(name, scope string) (found []Binding, err error) {
	for _, b := range s.Scoped {
		if b.Secret != name {
			continue
		}
		paths := make([]string, len(b.Paths))
		for i, p := range b.Paths {
			paths[i] = strings.ReplaceAll(p, "{}", scope)
		}
		b.Paths, b.GraphQL = paths, strings.ReplaceAll(b.GraphQL, "{}", scope)
		found = append(found, b)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("%s has no parts that it could be for: NAME:OWNER/REPO is for github", name)
	case !isRepository(scope):
		return nil, fmt.Errorf("%q is no repository: write it as OWNER/REPO, without .git", scope)
	}
	return found, nil
}

// of returns copies of the bindings of that name, and of what belongs to it: a
// sign-in's account goes with the sign-in.
func (s *Services) of(name string, own []Binding) (found []Binding) {
	for _, list := range [][]Binding{own, s.Bindings} {
		for _, b := range list {
			if b.Secret == name || b.Secret == name+"-account" {
				b.Hosts, b.Methods, b.Paths, b.DeniedPaths = slices.Clone(b.Hosts), slices.Clone(b.Methods), slices.Clone(b.Paths), slices.Clone(b.DeniedPaths)
				found = append(found, b)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// atOnly narrows the bindings to one host: those that have it, or else the first
// of them moved there, without its paths.
func atOnly(name, host string, found []Binding) (at []Binding, err error) {
	for _, b := range found {
		if slices.Contains(b.Hosts, host) {
			b.Hosts = []string{host}
			at = append(at, b)
		}
	}
	if len(at) > 0 {
		return at, nil
	}
	b := Binding{Secret: name, Variable: variableOf(name), Header: "authorization", Format: "Bearer {}"}
	if len(found) > 0 {
		b = found[0]
		b.Paths = nil
	}
	b.Hosts = []string{host}
	return []Binding{b}, b.Check()
}

// variableOf makes the name of a variable of that of a secret.
func variableOf(name string) string {
	v := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
	if !IsVariable(v) {
		v = "_" + v
	}
	return v
}

// Variables are the variables of the guest's environment that hold b's
// placeholder: its own and the aliases of that.
func (s *Services) Variables(b Binding) (names []string) {
	if b.Variable == "" {
		return nil
	}
	names = []string{b.Variable}
	for _, other := range slices.Sorted(maps.Keys(s.Aliases)) {
		if s.Aliases[other] == b.Variable {
			names = append(names, other)
		}
	}
	return names
}

// names are the secrets that are built in, each once.
func (s *Services) names() (names []string) {
	for _, b := range s.Bindings {
		if !slices.Contains(names, b.Secret) && !strings.HasSuffix(b.Secret, "-account") {
			names = append(names, b.Secret)
		}
	}
	return names
}
