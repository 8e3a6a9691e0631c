// Package rule is the rules of a sandbox: what one says, whether a name, an
// address or a flow is allowed by a set of them, and which rule would allow what
// was refused. Every tool that judges uses this package and nothing else.
//
// # Rules
//
// A rule is written in one of these forms. HOST is a host name, *.SUFFIX a
// suffix and any name below it at any depth, ADDRESS an IPv4 or IPv6 address,
// RANGE a CIDR or an address.
//
//	rule                     allows
//	HOST                     TLS or HTTP/1 to exactly that name, on any port,
//	                         proven from the bytes; ping
//	*.SUFFIX                 the same for SUFFIX and every name below it
//	ADDRESS, RANGE           HTTP whose Host is that address, TLS without a name
//	                         or with an allowed one that resolves there; ping
//	…:PORT                   only that TCP port, with the same proof; on a port
//	                         that is no usual one of TLS and HTTP, any protocol
//	…:PORT/raw               any bytes on that TCP port; proves nothing
//	…:PORT/udp               datagrams to that port (not 443: QUIC hides the name)
//	HOST…@RANGE              that HOST may resolve into RANGE, which may be closed
//	                         otherwise; behind the port: HOST:22@10.0.0.0/8
//	dns:HOST, dns:*.SUFFIX   TXT, SRV and MX answers, nothing else
//	host.sb.internal:PORT    the host's own loopback at that port, never without
//	                         one; host.docker.internal is the same name
//
// An IPv6 address with a port stands in brackets: [2001:db8::1]:443,
// [2001:db8::/32]:443. Addresses have one spelling. A name is ASCII; one in
// Unicode is converted (IDNA) and shown back, as String and Warning.
//
// A deny rule has the same forms but /raw and @RANGE. Without a protocol it
// covers TCP and UDP, and without a port everything: the lookup and ping too.
//
// # Decisions
//
// All denies, then all allows, else no. A nil Set and the zero Set refuse
// everything, and so does every method for the zero Name.
package rule

import (
	"net/netip"
	"strconv"
)

// Proto is what a flow is made of. The zero Proto is none and is refused.
type Proto uint8

const (
	TCP  Proto = iota + 1
	UDP        // datagrams
	ICMP       // an echo request; its port is 0
)

func (p Proto) String() string {
	if p < TCP || p > ICMP {
		return "-"
	}
	return [...]string{"tcp", "udp", "icmp"}[p-1]
}

// kind is what a rule is written for.
type kind uint8

const (
	exact  kind = iota + 1 // one name
	suffix                 // a name and all below it
	ranged                 // an address or a range
)

// grant is what an allow rule lets through. A higher one of TCP includes the
// lower ones.
type grant uint8

const (
	none    grant = iota
	udp           // datagrams
	proven        // TLS or HTTP/1 that names the host
	unnamed       // and bytes that are neither
	anyByte       // and TLS and HTTP that name no host or another
)

// Rule is one rule, as Parse or ParseDeny read it. The zero Rule matches nothing.
type Rule struct {
	text    string // canonical
	gives   grant  // as an allow rule
	kind    kind
	deny    bool
	dns     bool         // a dns: rule
	port    uint16       // 0: none is written
	proto   string       // what follows the port: "", "udp" or "raw"
	within  netip.Prefix // what follows "@"
	name    Name         // of exact; of suffix, what follows "*."
	addrs   netip.Prefix // of ranged
	warning string
}

// String is the rule in its canonical spelling, which Parse reads as the same rule.
func (r Rule) String() string { return r.text }

// Warning is what the user should know about a rule that is well formed: that
// anyone can publish under its suffix, that its name is another one on the wire.
// "" if there is nothing.
func (r Rule) Warning() string { return r.warning }

// Addrs is the address or the range that r is written for, the zero Prefix if it
// is written for names.
func (r Rule) Addrs() netip.Prefix { return r.addrs }

func (r *Rule) warn(text string) {
	if r.warning != "" {
		text = r.warning + "; " + text
	}
	r.warning = text
}

// grants is what r lets through as an allow rule.
func (r *Rule) grants() grant {
	switch {
	case r.proto == "udp":
		return udp
	case r.proto == "raw":
		return anyByte
	case r.port == 0 || usual(r.port):
		return proven
	}
	return unnamed
}

// covers says whether r, a deny rule for that host and port, covers p.
func (r *Rule) covers(p Proto) bool { return r.proto == "" || r.proto == p.String() }

// spell sets the canonical text.
func (r *Rule) spell() {
	r.text = ""
	if r.dns {
		r.text = "dns:"
	}
	switch {
	case r.kind == suffix:
		r.text += "*." + r.name.s
	case r.kind == exact:
		r.text += r.name.s
	case r.port != 0 && !r.addrs.Addr().Is4():
		r.text += "[" + rangeText(r.addrs) + "]"
	default:
		r.text += rangeText(r.addrs)
	}
	if r.port != 0 {
		r.text += ":" + strconv.Itoa(int(r.port))
	}
	if r.proto != "" {
		r.text += "/" + r.proto
	}
	if r.within.IsValid() {
		r.text += "@" + rangeText(r.within)
	}
}
