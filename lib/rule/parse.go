package rule

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxRule bounds the text of a rule in bytes: a name in Unicode, a port and a range.
const maxRule = 1024

// Parse reads an allow rule. An error names the character at fault where it is
// one, and has a hint with what would be right where that can be told.
func Parse(text string) (Rule, error) { return parse(text, false) }

// ParseDeny reads a deny rule. One that Parse would refuse for being too wide is
// fine; /raw and @RANGE are not, since they would deny less than they seem to.
func ParseDeny(text string) (Rule, error) { return parse(text, true) }

func parse(text string, deny bool) (Rule, error) {
	r := Rule{deny: deny}
	if f := r.read(text); f != nil {
		return Rule{}, f.err("rule", text)
	}
	r.spell()
	r.gives = r.grants()
	return r, nil
}

// read takes the text apart from its ends inwards: dns: in front, @RANGE behind,
// then the port, then what it is for.
func (r *Rule) read(text string) *fault {
	switch {
	case text == "":
		return faultf("a rule names a host, a suffix, an address or a range")
	case len(text) > maxRule:
		return faultf("a rule has at most %d bytes", maxRule)
	case strings.Contains(text, "://"):
		return charFault(strings.Index(text, "://"), "begins what a URL has and a rule has not").write("the host alone")
	}
	body, within, hasRange := strings.Cut(text, "@")
	begin := 0
	if rest, ok := strings.CutPrefix(body, "dns:"); ok {
		r.dns, body, begin = true, rest, len("dns:")
	}
	host, tail, f := splitPort(body)
	if f != nil {
		return f.moved(begin)
	}
	if tail != "" {
		if f := r.readPort(tail); f != nil {
			return f.moved(begin + len(body) - len(tail))
		}
	}
	if f := r.readHost(host); f != nil {
		return f.moved(begin + strings.Index(body, host))
	}
	if hasRange {
		if f := r.readWithin(text, within); f != nil {
			return f
		}
	}
	return r.check()
}

// splitPort cuts body into the host, without brackets, and what follows the
// colon before the port ("443", "53/udp").
func splitPort(body string) (host, tail string, f *fault) {
	if strings.HasPrefix(body, "[") {
		end := strings.IndexByte(body, ']')
		switch {
		case end < 0:
			return "", "", charFault(0, "is never closed")
		case !strings.Contains(body[:end], ":"):
			return "", "", charFault(0, "stands before an IPv6 address only")
		case end+1 == len(body):
			return body[1:end], "", nil
		case body[end+1] != ':' || end+2 == len(body):
			return "", "", charFault(end+1, "follows the bracket instead of a port")
		}
		return body[1:end], body[end+2:], nil
	}
	colon := strings.IndexByte(body, ':')
	if colon < 0 {
		return body, "", nil
	}
	more := strings.IndexByte(body[colon+1:], ':')
	switch {
	case more < 0 && colon+1 == len(body):
		return "", "", charFault(colon, "is followed by no port")
	case more < 0:
		return body[:colon], body[colon+1:], nil
	}
	if _, f := parseRange(body); f == nil || f.hint != "" {
		return body, "", nil // an IPv6 address without a port, or nearly one
	}
	last := strings.LastIndexByte(body, ':')
	if _, f := parseRange(body[:last]); f == nil {
		return "", "", charFault(last, "is part of the address, or stands before a port?").write("[%s]%s", body[:last], body[last:])
	}
	if strings.Trim(body[:colon], "0123456789abcdefABCDEF") == "" {
		return body, "", nil // an IPv6 address with a mistake in it
	}
	return "", "", charFault(colon+1+more, "follows the port")
}

func (r *Rule) readPort(tail string) *fault {
	digits, proto, hasProto := strings.Cut(tail, "/")
	if end := len(strings.TrimLeft(digits, "0123456789")); end > 0 {
		return charFault(len(digits)-end, "cannot stand in a port")
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil || n == 0:
		return faultf("port %s is not between 1 and 65535", digits)
	case strconv.FormatUint(n, 10) != digits:
		return charFault(0, "does not begin a port").write("port %d", n)
	}
	r.port = uint16(n)
	if !hasProto {
		return nil
	}
	r.proto = proto
	switch {
	case proto == "udp" || proto == "raw":
		return nil
	case proto == "tcp":
		return charFault(len(digits), `is followed by "tcp", which a rule means without saying it`).write("the port alone")
	}
	return charFault(len(digits), `is followed by neither "udp" nor "raw"`)
}

func (r *Rule) readHost(host string) *fault {
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		r.kind = suffix
		return r.readName(rest).moved(len("*."))
	}
	if at := strings.IndexByte(host, '*'); at >= 0 {
		if host == "*" {
			return charFault(at, "alone would allow every host").write("the hosts, or *.SUFFIX")
		}
		return charFault(at, "stands for whole labels in front of a suffix only: *.example.com")
	}
	base, length, isRange := strings.Cut(host, "/")
	if strings.Contains(host, ":") || endsInNumber(lower(strings.TrimSuffix(base, "."))) {
		if r.dns {
			return onlyName()
		}
		var f *fault
		r.kind = ranged
		r.addrs, f = parseRange(host)
		return f
	}
	switch {
	case isRange && (length == "udp" || length == "raw"):
		return charFault(len(base), "needs a port before it").write("%s:PORT/%s", base, length)
	case isRange:
		return charFault(len(base), "begins a path, which a rule has not").write("the host alone")
	}
	r.kind = exact
	return r.readName(host)
}

// readName reads a host name as people write it: one final dot is taken, letters
// beyond ASCII are converted.
func (r *Rule) readName(host string) *fault {
	low := lower(strings.TrimSuffix(host, "."))
	if strings.HasSuffix(low, ".") {
		return charFault(len(host)-1, "ends the name twice")
	}
	ascii, f := toASCII(low)
	if f != nil {
		return f
	}
	if f := checkName(ascii); f != nil {
		if ascii != low {
			f.at = 0 // it counts in the converted name
		}
		return f
	}
	if at := strings.IndexByte(ascii, '_'); at >= 0 && !r.dns {
		return charFault(at, "stands in names that are looked up for TXT, SRV and MX only").write("dns:%s", host)
	}
	if ascii != low {
		r.warn("on the wire it is " + ascii + "; check that this is the name you mean")
	}
	r.name = Name{ascii}
	if r.kind == exact {
		r.name = canonical(ascii)
	}
	return nil
}

func (r *Rule) readWithin(text, within string) *fault {
	p, f := parseRange(within)
	if f == nil {
		r.within = p
		return nil
	}
	at := len(text) - len(within)
	if i := strings.LastIndexByte(within, ':'); i >= 0 {
		inner := strings.Trim(within[:i], "[]")
		if _, g := parseRange(inner); g == nil {
			f := charFault(at+i, "stands behind the range: the port comes before the @")
			if r.port == 0 {
				f.write("%s%s@%s", text[:at-1], within[i:], inner)
			}
			return f
		}
	}
	return f.moved(at)
}

// check refuses what is well formed and should not be said.
func (r *Rule) check() *fault {
	switch {
	case r.dns && (r.port != 0 || r.within.IsValid()):
		return onlyName()
	case r.within.IsValid() && r.kind == ranged:
		return faultf("@ says where a name may resolve to; an address needs none").write("%s", rangeText(r.addrs))
	case r.deny && r.within.IsValid():
		return faultf("a deny rule denies the name wherever it resolves to").write("the name alone, or the range alone")
	case r.deny && r.proto == "raw":
		return faultf("a deny rule denies every protocol").write("the port alone")
	case r.deny:
		return nil
	case r.proto == "udp" && r.port == 443:
		return faultf("UDP on port 443 is QUIC, which hides the name it asks for; clients fall back to TCP").write("the port alone")
	case canonical(r.name.s).IsHost() && (r.kind == suffix || r.port == 0 || r.within.IsValid()):
		return faultf("%s is this host's own loopback, at one port", HostName).write("%s:PORT", HostName)
	}
	for _, p := range []netip.Prefix{r.addrs, r.within} {
		if f := r.checkWidth(p); f != nil {
			return f
		}
	}
	if r.addrs.IsValid() && r.addrs.Addr().IsLoopback() || r.kind == exact && r.name.s == "localhost" {
		r.warn("in the guest that is the guest itself; this host's own loopback is " + HostName + ":PORT")
	}
	if r.kind == suffix {
		return r.checkSuffix()
	}
	return nil
}

func onlyName() *fault {
	return faultf("a dns: rule is for a name alone: no address, port or range").write("dns:HOST or dns:*.SUFFIX")
}

// checkWidth refuses every address at once, and warns of a range that holds this
// host's loopback or link-local addresses, where metadata services listen, and
// more: it hardly was meant to.
func (r *Rule) checkWidth(p netip.Prefix) *fault {
	if !p.IsValid() {
		return nil
	}
	if p.Bits() == 0 {
		return faultf("%s is every address", p).write("the ranges that are meant")
	}
	for _, special := range loopbacks {
		if p.Overlaps(special) && p.Bits() < special.Bits() {
			r.warn(p.String() + " holds " + special.String() + ", where this host's own services listen, or the cloud's")
		}
	}
	return nil
}

var loopbacks = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fe80::/10"),
}
