//go:build linux

package share

import (
	"fmt"
	"path"
	"strings"
)

// standing is what the rules say of a file or of a name in a directory.
type standing uint8

const (
	hidden    standing = 1 << iota // does not exist
	protected                      // can be read, not changed
	above                          // a pattern's path leads through it
	shadowed                       // the guest's changes are made in the store
)

// rule is a pattern in its components, in lower case. anywhere is one that may
// begin in any directory.
type rule struct {
	parts    []string
	anywhere bool
	says     standing
}

// rules are all patterns of an export.
type rules struct {
	all []rule
	// exact are the paths, each with what it says: the files there and below are
	// meant whatever name leads to them.
	exact []exactRule
	odd   bool // a name of theirs has other spellings than in case
}

// exactRule is a path in parts: globs, and what stands between them.
type exactRule struct {
	parts []string
	says  standing
}

// progress is how far along each rule a directory's path has come: bit i of a
// rule's word is set when the path matches the first i components. After the
// last component a bit stands for all that lies below.
type progress []uint64

const maxParts = 60

func newRules(hide, protect, shadow []string) (rules, error) {
	var rs rules
	for _, p := range hide {
		if err := rs.add(p, hidden); err != nil {
			return rules{}, err
		}
	}
	for _, p := range protect {
		if err := rs.add(p, protected); err != nil {
			return rules{}, err
		}
	}
	for _, p := range shadow {
		if !strings.Contains(p, "/") {
			return rules{}, fmt.Errorf("share: shadow %q is a name anywhere, and not a path: write /%s", p, p)
		}
		if err := rs.add(p, shadowed); err != nil {
			return rules{}, err
		}
	}
	return rs, nil
}

func (rs *rules) add(pattern string, says standing) error {
	clean := strings.Trim(pattern, "/")
	r := rule{parts: strings.Split(strings.ToLower(clean), "/"), anywhere: !strings.Contains(pattern, "/"), says: says}
	if len(r.parts) > maxParts {
		return fmt.Errorf("share: pattern %q has more than %d components", pattern, maxParts)
	}
	for _, part := range r.parts {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("share: pattern %q has the component %q, which no file is called", pattern, part)
		}
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("share: pattern %q: %w", pattern, err)
		}
		rs.odd = rs.odd || !plain(part)
	}
	rs.all = append(rs.all, r)
	if !r.anywhere {
		rs.exact = append(rs.exact, exactRule{between(strings.Split(clean, "/")), says})
	}
	return nil
}

// between joins the components between globs.
func between(parts []string) (joined []string) {
	for i, part := range parts {
		if i > 0 && !isGlob(part) && !isGlob(parts[i-1]) {
			joined[len(joined)-1] += "/" + part
		} else {
			joined = append(joined, part)
		}
	}
	return joined
}

func isGlob(part string) bool { return strings.ContainsAny(part, `*?[\`) }

// start is the root's progress.
func (rs *rules) start() progress {
	if len(rs.all) == 0 {
		return nil
	}
	p := make(progress, len(rs.all))
	for i := range p {
		p[i] = 1
	}
	return p
}

// end is a progress to which every rule applies.
func (rs *rules) end() progress {
	p := make(progress, len(rs.all))
	for i, r := range rs.all {
		p[i] = 1 << len(r.parts)
	}
	return p
}

// step is the progress of name in a directory whose progress is p, and what the
// rules say of it.
func (rs *rules) step(p progress, name string) (progress, standing) {
	if len(rs.all) == 0 {
		return nil, 0
	}
	if p == nil {
		p = rs.end() // nobody knows where it lies
	}
	name = strings.ToLower(name)
	next := make(progress, len(rs.all))
	var says standing
	for i, r := range rs.all {
		next[i] = r.step(p[i], name)
		says |= r.standing(next[i])
	}
	return next, says
}

func (r *rule) step(bits uint64, name string) uint64 {
	n := len(r.parts)
	var next uint64
	for i, part := range r.parts {
		if bits&(1<<i) == 0 {
			continue
		}
		if ok, _ := path.Match(part, name); ok {
			next |= 1 << (i + 1)
		}
	}
	// What matched stays matched below.
	next |= bits & (1 << n)
	if r.anywhere {
		next |= 1
	}
	return next
}

func (r *rule) standing(bits uint64) standing {
	n := len(r.parts)
	if bits&(1<<n) != 0 {
		return r.says
	}
	if bits&^1 != 0 {
		return above
	}
	return 0
}

// merge adds q to p: a directory that is known under two paths stands as both.
func merge(p, q progress) progress {
	if p == nil {
		return q
	}
	for i := range q {
		p[i] |= q[i]
	}
	return p
}

// standing is what the rules say of a file with progress p.
func (rs *rules) standing(p progress) standing {
	var says standing
	for i := range p {
		says |= rs.all[i].standing(p[i])
	}
	return says
}
