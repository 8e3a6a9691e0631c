package rule

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Set is rules ready to judge by. It does not change, and any number of
// goroutines may use it. A nil Set and the zero Set refuse everything.
//
// A decision costs one look-up for each label of a name, or for each prefix
// length that stands in a rule, however many rules there are.
type Set struct {
	names    map[string]node
	depth    int // labels of the longest suffix in names
	ranges   map[rangeKey]*scope
	lengths4 []int // the prefix lengths in ranges, of IPv4, longest first
	lengths6 []int
	warnings []string
}

// node is the rules in which one name stands.
type node struct {
	exact *scope // HOST
	below *scope // *.HOST
}

// scope is every rule for one host, one suffix or one range. All of its fields
// may be nil.
type scope struct {
	bare  side       // without a port
	ports []portSide // by port, sorted
	other side       // dns:
	first *Rule      // the first allow that is not for dns: alone
}

type side struct{ deny, allow []*Rule }

type portSide struct {
	port uint16
	side
}

// search returns where port is among the ports, or belongs.
func (sc *scope) search(port uint16) (int, bool) {
	return slices.BinarySearchFunc(sc.ports, port, func(p portSide, port uint16) int { return int(p.port) - int(port) })
}

// Compile makes a Set of rules that were read by Parse and by ParseDeny. A rule
// on the wrong side never opens anything: as a deny it covers all that it names,
// as an allow nothing.
func Compile(allow, deny []Rule) *Set {
	s := &Set{names: map[string]node{}, ranges: map[rangeKey]*scope{}}
	for _, r := range deny {
		if at := s.side(&r); at != nil {
			r.proto, r.within = denied(r.proto), netip.Prefix{}
			at.deny = add(at.deny, &r)
		}
		s.warn(&r)
	}
	for _, r := range allow {
		if r.deny {
			continue
		}
		if at := s.side(&r); at != nil {
			at.allow = add(at.allow, &r)
			if sc := s.scope(&r); sc.first == nil && !r.dns {
				sc.first = &r
			}
		}
		s.warn(&r)
	}
	return s
}

// denied is the protocol that a deny rule covers: /raw is all of them.
func denied(proto string) string {
	if proto == "raw" {
		return ""
	}
	return proto
}

func add(to []*Rule, r *Rule) []*Rule {
	for _, have := range to {
		if have.text == r.text {
			return to
		}
	}
	return append(to, r)
}

func (s *Set) warn(r *Rule) {
	if r.warning == "" {
		return
	}
	text := fmt.Sprintf("rule %q: %s", r.text, r.warning)
	for _, have := range s.warnings {
		if have == text {
			return
		}
	}
	s.warnings = append(s.warnings, text)
}

// Warnings is what the user should know about the rules, each once.
func (s *Set) Warnings() []string {
	if s == nil {
		return nil
	}
	return s.warnings
}

// side returns where r belongs, nil for the zero Rule; for use before the next call.
func (s *Set) side(r *Rule) *side {
	sc := s.scope(r)
	switch {
	case sc == nil:
		return nil
	case r.dns:
		return &sc.other
	case r.port == 0:
		return &sc.bare
	}
	i, found := sc.search(r.port)
	if !found {
		sc.ports = slices.Insert(sc.ports, i, portSide{port: r.port})
	}
	return &sc.ports[i].side
}

func (s *Set) scope(r *Rule) *scope {
	if r.kind == ranged {
		return s.rangeScope(r.addrs)
	}
	if r.kind != exact && r.kind != suffix {
		return nil
	}
	n := s.names[r.name.s]
	at := &n.exact
	if r.kind == suffix {
		at = &n.below
		s.depth = max(s.depth, strings.Count(r.name.s, ".")+1)
	}
	if *at == nil {
		*at = &scope{}
		s.names[r.name.s] = n
	}
	return *at
}

// rangeKey is a prefix, IPv4 within IPv6 as in ::ffff:0:0/96. It hashes faster
// than a netip.Prefix.
type rangeKey struct{ high, low, bits uint64 }

// key is the prefix of that length, counted as in IPv6, that holds a.
func key(a netip.Addr, bits int) rangeKey {
	b := a.As16()
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if bits <= 64 {
		return rangeKey{high &^ (1<<(64-bits) - 1), 0, uint64(bits)}
	}
	return rangeKey{high, low &^ (1<<(128-bits) - 1), uint64(bits)}
}

func (s *Set) rangeScope(p netip.Prefix) *scope {
	bits, lengths := p.Bits(), &s.lengths6
	if p.Addr().Is4() {
		bits, lengths = bits+96, &s.lengths4
	}
	k := key(p.Addr(), bits)
	if s.ranges[k] == nil {
		s.ranges[k] = &scope{}
		*lengths = addLength(*lengths, bits)
	}
	return s.ranges[k]
}

// addLength keeps lengths sorted, longest first, each once.
func addLength(lengths []int, bits int) []int {
	i := 0
	for i < len(lengths) && lengths[i] > bits {
		i++
	}
	if i < len(lengths) && lengths[i] == bits {
		return lengths
	}
	lengths = append(lengths, 0)
	copy(lengths[i+1:], lengths[i:])
	lengths[i] = bits
	return lengths
}

// ofName appends the rules that n falls under, the most specific first.
func (s *Set) ofName(to []*scope, n Name) []*scope {
	if s == nil || n.s == "" {
		return to
	}
	if at := s.names[n.s]; at.exact != nil {
		to = append(to, at.exact)
	}
	to = s.ofSuffixes(to, n.s)
	if n.IsHost() {
		to = s.ofSuffixes(to, dockerHostName)
	}
	return to
}

// ofSuffixes looks no deeper than the deepest suffix: the guest chooses how many
// labels a name has.
func (s *Set) ofSuffixes(to []*scope, name string) []*scope {
	from := len(name) + 1
	for n := 0; n < s.depth && from > 0; n++ {
		from = strings.LastIndexByte(name[:from-1], '.') + 1
	}
	for from < len(name) {
		if at := s.names[name[from:]]; at.below != nil {
			to = append(to, at.below)
		}
		dot := strings.IndexByte(name[from:], '.')
		if dot < 0 {
			break
		}
		from += dot + 1
	}
	return to
}

// ofAddr appends the rules whose address or range holds a, the longest first.
func (s *Set) ofAddr(to []*scope, a netip.Addr) []*scope {
	if s == nil || !a.IsValid() {
		return to
	}
	lengths := s.lengths6
	if a.Is4() {
		lengths = s.lengths4
	}
	for _, bits := range lengths {
		if sc := s.ranges[key(a, bits)]; sc != nil {
			to = append(to, sc)
		}
	}
	return to
}
