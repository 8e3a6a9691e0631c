package class

import (
	"fmt"
	"net"
	"net/netip"
)

// Host is the addresses of this host's own interfaces at one time, and the
// broadcast addresses of their subnets. A service bound to every address listens
// on each of them, a public one too, so none is dialled unasked. The zero Host
// knows no address and takes every one for the host's own.
type Host struct {
	own map[netip.Addr]bool
}

// ThisHost is the class of an address of this host.
const ThisHost = "this-host"

// HostAddrs asks the system for the addresses that the interfaces have now.
// They change, with a VPN or another Wi-Fi: ask again from time to time.
func HostAddrs() (Host, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return Host{}, fmt.Errorf("list this host's addresses: %w", err)
	}
	var subnets []netip.Prefix
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return Host{}, fmt.Errorf("list this host's addresses: %w", err)
		}
		subnets = append(subnets, p)
	}
	return NewHost(subnets), nil
}

// NewHost is a host whose interfaces have these addresses, each with the length
// of its subnet.
func NewHost(interfaces []netip.Prefix) Host {
	h := Host{own: map[netip.Addr]bool{}}
	for _, p := range interfaces {
		a := p.Addr().Unmap().WithZone("")
		h.own[a] = true
		if a.Is4() && p.Bits() < 31 { // RFC 3021: a /31 has no broadcast address
			h.own[broadcast(a, p.Bits())] = true
		}
	}
	return h
}

func broadcast(a netip.Addr, bits int) netip.Addr {
	b := a.As4()
	for i := bits; i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// Of is Of of the package, and ThisHost for an address of this host. Loopback
// stays loopback.
func (h Host) Of(a netip.Addr) string {
	name := Of(a)
	if name == "loopback" || name == "invalid" {
		return name
	}
	if h.own == nil || h.own[a] || h.own[Unwrap(a)] {
		return ThisHost
	}
	return name
}
