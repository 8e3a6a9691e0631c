package manifest

import (
	"fmt"
	"net"
	"net/netip"
)

// DefaultPool is where a sandbox's addresses come from: the range that RFC 2544
// set aside for tests between networks, which no host on the Internet has.
const DefaultPool = "198.18.0.0/15"

// The size of a frame on the wire. DefaultMTU is for QEMU, where a large frame
// is the one lever on throughput; Apple's attachment stalls above 1500.
const (
	DefaultMTU = 1500
	MinMTU     = 1280
	MaxMTU     = 65520
)

// Network is what the gate and the machine agree on.
type Network struct {
	// Pool is the range of the sandbox. Its first /24 is the wire's own network;
	// the rest are handles, each of which stands for one name.
	Pool netip.Prefix `toml:"pool,omitempty"`
	MTU  int          `toml:"mtu,omitempty"` // bytes of an IP packet
	ECH  ECH          `toml:"ech,omitempty"`
}

// ECH is what happens to a TLS ClientHello that is encrypted, or made to look as
// if it were, as browsers send it always. The zero value refuses it.
type ECH string

// The values of ECH.
const (
	ECHRefuse ECH = "refuse"
	ECHAuto   ECH = "auto" // it passes where the gate finds that the server could not decrypt it
)

// UnmarshalText takes the values of ECH and no other.
func (e *ECH) UnmarshalText(text []byte) error {
	switch v := ECH(text); v {
	case ECHRefuse, ECHAuto:
		*e = v
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", text, ECHRefuse, ECHAuto)
}

// The two ends of the wire. The addresses are locally administered (bit 1 of the
// first octet), the same in every sandbox: nobody else is on the wire.
var (
	GatewayMAC = net.HardwareAddr{0x5a, 0x94, 0xef, 0xe4, 0x0c, 0x01}
	GuestMAC   = net.HardwareAddr{0x5a, 0x94, 0xef, 0xe4, 0x0c, 0x02}
)

// Subnet is the network of the wire itself: the first /24 of the pool.
func (n Network) Subnet() netip.Prefix { return netip.PrefixFrom(n.Pool.Masked().Addr(), 24) }

// Gateway is the gate's address, the first of the subnet.
func (n Network) Gateway() netip.Addr { return n.Subnet().Addr().Next() }

// Guest is the machine's address, the second of the subnet.
func (n Network) Guest() netip.Addr { return n.Gateway().Next() }

// FirstHandle is the first address that may stand for a name.
func (n Network) FirstHandle() netip.Addr {
	a := n.Subnet().Addr().As4()
	a[2]++
	return netip.AddrFrom4(a)
}

// IsHandle reports whether a can stand for a name: in the pool, outside the subnet.
func (n Network) IsHandle(a netip.Addr) bool { return n.Pool.Contains(a) && !n.Subnet().Contains(a) }

func (n Network) check() (key string, err error) {
	if !n.Pool.Addr().Is4() || n.Pool.Bits() > 20 || n.Pool.Bits() < 8 || n.Pool != n.Pool.Masked() {
		return "network.pool", fmt.Errorf("%s is no IPv4 range between /8 and /20", n.Pool)
	}
	if n.MTU < MinMTU || n.MTU > MaxMTU {
		return "network.mtu", fmt.Errorf("%d is not between %d and %d", n.MTU, MinMTU, MaxMTU)
	}
	return "", nil
}
