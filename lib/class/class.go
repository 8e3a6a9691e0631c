// Package class says which special range an address lies in: private, loopback,
// link-local, cloud metadata and so on.
//
// A name that resolves into such a range is not dialled unless a rule names the
// range, whoever answered the question: the sandbox dials from the host, so such
// an address is the host's own network. net/netip's IsPrivate and
// IsGlobalUnicast are no such test (they call 100.64.0.1, 198.18.0.1 and
// 64:ff9b::7f00:1 ordinary).
package class

import "net/netip"

// Of returns the name of the special range that a lies in, or "" for an address
// of the public internet. An IPv6 address that carries an IPv4 address has the
// class of that one, if it has any. The zero Addr and one with a zone are
// "invalid".
func Of(a netip.Addr) string {
	if !a.IsValid() || a.Zone() != "" {
		return "invalid"
	}
	a = a.Unmap()
	if a.Is4() {
		return find(v4, a)
	}
	if inner := Unwrap(a); inner.Is4() {
		if name := find(v4, inner); name != "" {
			return name
		}
	}
	return find(v6, a)
}

func find(rows []row, a netip.Addr) string {
	for _, r := range rows {
		if r.prefix.Contains(a) {
			return r.name
		}
	}
	return ""
}

// Unwrap returns the IPv4 address that an IPv6 address carries, and any other
// address as it is: IPv4-mapped, IPv4-compatible, NAT64, 6to4 and Teredo
// addresses all end at an IPv4 host.
func Unwrap(a netip.Addr) netip.Addr {
	if a.Is4() || !a.IsValid() {
		return a
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case a.Is4In6(), nat64.Contains(a), nat64Local.Contains(a):
		return last
	case compatible.Contains(a):
		// "::" and "::1" have a meaning of their own (RFC 4291 §2.5.2, §2.5.3).
		if a == netip.IPv6Unspecified() || a.IsLoopback() {
			return a
		}
		return last
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	case teredo.Contains(a):
		// The client's address, its bits turned (RFC 4380 §4).
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
	}
	return a
}

var (
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291 §2.5.5.1, deprecated
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052 §2.1
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215; its /96 form is taken
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380
)
