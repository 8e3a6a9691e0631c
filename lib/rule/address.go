package rule

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// parseRange reads an address or a CIDR, in the one spelling that every program
// reads the same way. An address is a range of one.
func parseRange(s string) (netip.Prefix, *fault) {
	base, bits, isRange := strings.Cut(s, "/")
	a, f := parseAddr(base)
	if !a.IsValid() {
		return netip.Prefix{}, f
	}
	n := a.BitLen()
	if isRange {
		var err error
		n, err = strconv.Atoi(bits)
		if err != nil || strconv.Itoa(n) != bits || n < 0 || n > a.BitLen() {
			if f == nil {
				f = faultf("/%s is no prefix length of an address of %d bits", bits, a.BitLen())
			}
			return netip.Prefix{}, f
		}
	}
	p := netip.PrefixFrom(a, n).Masked()
	if f == nil && p.Addr() != a {
		f = faultf("the address has bits set behind the first %d", n)
	}
	if f != nil {
		return netip.Prefix{}, f.write("%s", rangeText(p))
	}
	return p, nil
}

// parseAddr reads an address. With a fault it returns the address that was meant,
// if that is plain.
func parseAddr(s string) (netip.Addr, *fault) {
	if at := strings.IndexByte(s, '%'); at >= 0 {
		return netip.Addr{}, charFault(at, "cannot stand in an address: a zone has a meaning on one host only")
	}
	a, err := netip.ParseAddr(s)
	switch {
	case err == nil && a.Is4In6():
		return a.Unmap(), faultf("%s is an IPv4 address in an IPv6 spelling", s)
	case err == nil:
		return a, nil
	}
	if a, ok := inetAton(s); ok {
		return a, faultf("%s is not how an address is written", s)
	}
	return netip.Addr{}, faultf("%s is no address", s)
}

// inetAton reads the other spellings of an IPv4 address that inet_aton(3) takes:
// fewer than four numbers, and hexadecimal ones. Octal ones it refuses, since
// 010 is 8 to some programs and 10 to others.
func inetAton(s string) (netip.Addr, bool) {
	parts := strings.Split(strings.ToLower(s), ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint32
	for i, p := range parts {
		base := 10
		if strings.HasPrefix(p, "0x") {
			p, base = p[2:], 16
		} else if len(p) > 1 && p[0] == '0' {
			return netip.Addr{}, false
		}
		width := 8
		if i == len(parts)-1 {
			width = 8 * (5 - len(parts)) // the last number fills what is left
		}
		n, err := strconv.ParseUint(p, base, width)
		if err != nil {
			return netip.Addr{}, false
		}
		sum = sum<<width | uint32(n)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], sum)
	return netip.AddrFrom4(b), true
}

// rangeText is the canonical text of p: an address if it holds just one.
func rangeText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
