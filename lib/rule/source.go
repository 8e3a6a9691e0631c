package rule

import (
	"fmt"
)

// Source is rules as a user wrote them, and where, in words for an error:
// "--allow", "config.toml", "rules:3".
type Source struct {
	Origin string
	Allow  []string
	Deny   []string
}

// Load parses the rules of every source and compiles them into one Set. The
// error is of the first rule that is not understood, with its origin; then there
// is no Set.
func Load(sources ...Source) (*Set, error) {
	var allow, deny []Rule
	for _, src := range sources {
		for _, text := range src.Allow {
			r, err := Parse(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", src.Origin, err)
			}
			allow = append(allow, r)
		}
		for _, text := range src.Deny {
			r, err := ParseDeny(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", src.Origin, err)
			}
			deny = append(deny, r)
		}
	}
	return Compile(allow, deny), nil
}
