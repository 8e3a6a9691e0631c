package rule

import (
	"net/netip"
	"strconv"

	"sb/lib/class"
	"sb/lib/reason"
)

// Suggest returns the narrowest rule that allows what was refused for the reason
// why, "" if none does or none should: a deny rule is lifted by no other, and
// nobody is told how to open an address of loopback or a cloud's metadata
// service. target is
// the name or the address that the guest wanted; address is where the name
// resolved to, the zero Addr if that is not known. A port of 0 is none in
// particular.
func Suggest(target string, p Proto, port uint16, why reason.Code, address netip.Addr) string {
	host, isName := suggestHost(target)
	if host == "" {
		return ""
	}
	text := host + suggestPort(p, port)
	switch why {
	case reason.NoAllowRule, reason.UnresolvedAddress:
		if p == UDP && port == 443 {
			return "" // QUIC passes under no rule; its clients fall back to TCP
		}
	case reason.UDPDenied:
	case reason.SNIDenied, reason.HostDenied:
		text = host
	case reason.NotIdentified, reason.ServerFirst:
		if usual(port) {
			text += "/raw"
		}
	case reason.SNIAbsent, reason.HTTP2Cleartext, reason.HTTPUpgrade:
		text += "/raw"
	case reason.DNSType:
		text = "dns:" + target
	case reason.AddressClass:
		if !isName || !address.IsValid() || closed(address) {
			return ""
		}
		text += "@" + address.Unmap().String()
	default:
		return ""
	}
	if r, err := Parse(text); err == nil {
		return r.text
	}
	return ""
}

// suggestHost is how a rule names the target, "" if none should.
func suggestHost(target string) (host string, isName bool) {
	if a, err := netip.ParseAddr(target); err == nil {
		if closed(a) {
			return "", false
		}
		if a = a.Unmap(); a.Is4() {
			return a.String(), false
		}
		return "[" + a.String() + "]", false
	}
	n, err := ParseName(target)
	if err != nil {
		return "", false
	}
	return n.s, true
}

func suggestPort(p Proto, port uint16) string {
	switch {
	case p == ICMP || port == 0:
		return ""
	case p == UDP:
		return ":" + strconv.Itoa(int(port)) + "/udp"
	}
	return ":" + strconv.Itoa(int(port))
}

// closed says whether an address lies in a range that a rule opens only if the
// user thought of it without being told.
func closed(a netip.Addr) bool {
	switch class.Of(a) {
	case "", "private", "shared", "unique-local", "documentation": // the range for benchmarking is the sandboxes' own
		return false
	}
	return true
}
