package rule

import (
	"net/netip"

	"sb/lib/class"
	"sb/lib/reason"
)

// Verdict is a decision. The zero Verdict refuses.
type Verdict struct {
	Allow  bool
	Reason reason.Code
	Rule   string // the rule that decided, canonical; of several allows the one that grants the most; "" if none
	Raw    bool   // of a flow: bytes that are neither TLS nor HTTP may pass
	Any    bool   // of a flow under a /raw rule: nothing is to be proven, TLS and HTTP may name what they like
}

// Admits lists what the verdict lets through to a port, 0 being no particular
// one: of tls, http, raw, udp and ping.
func (v Verdict) Admits(p Proto, port uint16) []string {
	switch {
	case !v.Allow:
		return nil
	case p == UDP:
		return []string{"udp"}
	case v.Any:
		return []string{"raw"}
	case v.Raw:
		return []string{"tls", "http", "raw"}
	case port == 0:
		return []string{"tls", "http", "ping"}
	}
	return []string{"tls", "http"}
}

func refuse(why reason.Code, by *Rule) Verdict {
	v := Verdict{Reason: why}
	if by != nil {
		v.Rule = by.text
	}
	return v
}

func allow(by *Rule) Verdict {
	g := by.gives
	return Verdict{Allow: true, Reason: reason.AllowRule, Rule: by.text,
		Raw: g == udp || g >= unnamed, Any: g == udp || g == anyByte}
}

// Lookup says whether n may be looked up: whether any allow rule could lead to
// it. A deny rule counts if it has no port.
func (s *Set) Lookup(n Name) Verdict {
	var room [16]*scope
	scopes := s.ofName(room[:0], n)
	if n.s == "" {
		return refuse(reason.BadName, nil)
	}
	for _, sc := range scopes {
		if len(sc.bare.deny) > 0 {
			return refuse(reason.DenyRule, sc.bare.deny[0])
		}
	}
	for _, sc := range scopes {
		if sc.first != nil && sc.first.mayAllow(n) {
			return Verdict{Allow: true, Reason: reason.AllowRule, Rule: sc.first.text}
		}
	}
	return refuse(reason.NoAllowRule, nil)
}

// LookupOther says whether the TXT, SRV and MX records of n may be looked up.
func (s *Set) LookupOther(n Name) Verdict {
	var room [16]*scope
	scopes := s.ofName(room[:0], n)
	if n.s == "" {
		return refuse(reason.BadName, nil)
	}
	for _, sc := range scopes {
		for _, deny := range [][]*Rule{sc.bare.deny, sc.other.deny} {
			if len(deny) > 0 {
				return refuse(reason.DenyRule, deny[0])
			}
		}
	}
	for _, sc := range scopes {
		if r := sc.other.allow; len(r) > 0 && r[0].mayAllow(n) {
			return Verdict{Allow: true, Reason: reason.AllowRule, Rule: r[0].text}
		}
	}
	if s.Lookup(n).Allow {
		return refuse(reason.DNSType, nil)
	}
	return refuse(reason.NoAllowRule, nil)
}

// Dial says whether a flow to the name n may be opened at that port. A port of 0
// is none in particular: a rule with a port does not match it. For ICMP the port
// is ignored.
func (s *Set) Dial(n Name, p Proto, port uint16) Verdict {
	var room [16]*scope
	scopes := s.ofName(room[:0], n)
	if n.s == "" {
		return refuse(reason.BadName, nil)
	}
	if r := denies(scopes, p, port); r != nil {
		return refuse(reason.DenyRule, r)
	}
	if r := allows(scopes, p, port, nameAt{n, netip.Addr{}}); r != nil {
		return allow(r)
	}
	if p == UDP && s.Lookup(n).Allow {
		return refuse(udpReason(port), nil)
	}
	return refuse(reason.NoAllowRule, nil)
}

// DialAddr says whether a flow to an address may be opened that the guest dialled
// as it is. Where no allow rule holds the address, that is unresolved-address.
func (s *Set) DialAddr(a netip.Addr, p Proto, port uint16) Verdict {
	var room [16]*scope
	scopes := s.ofAddr(room[:0], a.Unmap())
	if r := s.deniesAddr(scopes, a, p, port); r != nil {
		return refuse(reason.DenyRule, r)
	}
	if r := allows(scopes, p, port, nameAt{}); r != nil {
		return allow(r)
	}
	for _, sc := range scopes {
		switch {
		case sc.first != nil && p == UDP:
			return refuse(udpReason(port), nil)
		case sc.first != nil:
			return refuse(reason.NoAllowRule, nil)
		}
	}
	return refuse(reason.UnresolvedAddress, nil)
}

// Reach says whether n may be dialled at the address a, which it resolved to. It
// allows nothing that Dial refuses. special is the class of a (class.Of, or
// class.ThisHost): where it is not "", a rule must name the address or its range
// at that port, or be of n and hold a behind its @. The name of the host's own
// loopback needs no more than its rule, and leads nowhere else.
func (s *Set) Reach(n Name, a netip.Addr, special string, p Proto, port uint16) Verdict {
	v := s.Dial(n, p, port)
	var room [16]*scope
	scopes := s.ofAddr(room[:0], a.Unmap())
	if v.Reason != reason.DenyRule {
		if r := s.deniesAddr(scopes, a, p, port); r != nil {
			return refuse(reason.DenyRule, r)
		}
	}
	a = a.Unmap()
	switch {
	case !v.Allow:
		return v
	case !a.IsValid():
		return refuse(reason.AddressClass, nil)
	case n.IsHost() && a.IsLoopback(), special == "" && !n.IsHost():
		return v
	case n.IsHost():
		return refuse(reason.AddressClass, nil)
	}
	var more [16]*scope
	if r := allows(s.ofName(more[:0], n), p, port, nameAt{n, a}); r != nil {
		return allow(r)
	}
	if r := allows(scopes, p, port, nameAt{}); r != nil {
		v.Rule = r.text
		return v
	}
	return refuse(reason.AddressClass, nil)
}

// Budgeted says whether looking n up counts against the budget of new names: the
// guest chose its labels, unless a rule has exactly that name.
func (s *Set) Budgeted(n Name) bool {
	if s == nil {
		return true
	}
	at := s.names[n.s]
	return at.exact == nil || at.exact.first == nil
}

func udpReason(port uint16) reason.Code {
	if port == 443 {
		return reason.QUICRefused
	}
	return reason.UDPDenied
}

// denies returns the first deny rule that covers a flow.
func denies(scopes []*scope, p Proto, port uint16) *Rule {
	for _, sc := range scopes {
		if len(sc.bare.deny) > 0 {
			return sc.bare.deny[0]
		}
		if at := sc.at(p, port); at != nil {
			for _, r := range at.deny {
				if r.covers(p) {
					return r
				}
			}
		}
	}
	return nil
}

// deniesAddr is denies for an address, whose rules are scopes, and for the IPv4
// address within it.
func (s *Set) deniesAddr(scopes []*scope, a netip.Addr, p Proto, port uint16) *Rule {
	r := denies(scopes, p, port)
	if inner := class.Unwrap(a); r == nil && inner != a.Unmap() {
		var room [16]*scope
		r = denies(s.ofAddr(room[:0], inner), p, port)
	}
	return r
}

// nameAt is a name and the special address it shall be dialled at: only rules
// that hold the address behind their @ count, if there is one.
type nameAt struct {
	name Name
	addr netip.Addr
}

// allows returns the rule that grants the most to a flow, nil if none allows it.
func allows(scopes []*scope, p Proto, port uint16, to nameAt) *Rule {
	if p < TCP || p > ICMP {
		return nil
	}
	var best *Rule
	most := none
	for _, sc := range scopes {
		sides := [2]*side{&sc.bare, sc.at(p, port)}
		for _, at := range sides {
			if at == nil {
				continue
			}
			for _, r := range at.allow {
				g := r.gives
				if g <= most || (g == udp) != (p == UDP) || !r.mayAllow(to.name) {
					continue
				}
				if to.addr.IsValid() && !r.within.Contains(to.addr) {
					continue
				}
				best, most = r, g
			}
		}
	}
	return best
}

// at returns the rules for a port, nil if there are none.
func (sc *scope) at(p Proto, port uint16) *side {
	if p == ICMP || len(sc.ports) == 0 {
		return nil
	}
	i, found := sc.search(port)
	if !found {
		return nil
	}
	return &sc.ports[i].side
}

// mayAllow says whether r may allow n: a wildcard never is meant for this host's
// own loopback.
func (r *Rule) mayAllow(n Name) bool { return r.kind != suffix || !n.IsHost() }
