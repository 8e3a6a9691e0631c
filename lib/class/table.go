package class

import "net/netip"

// A row is one range and its name. In a table the first row that holds an
// address decides, so a range stands before any that contains it.
type row struct {
	prefix netip.Prefix
	name   string
}

func r(prefix, name string) row { return row{netip.MustParsePrefix(prefix), name} }

// v4 is the IANA IPv4 Special-Purpose Address Registry (RFC 6890), all of its
// rows, the globally reachable ones too: none of them is a server that a name of
// the internet should lead to. Besides: the multicast registry and the metadata
// addresses of clouds.
var v4 = []row{
	r("0.0.0.0/32", "unspecified"),        // RFC 1122 §3.2.1.3: this host on this network
	r("0.0.0.0/8", "this-network"),        // RFC 791 §3.2
	r("10.0.0.0/8", "private"),            // RFC 1918
	r("100.100.100.200/32", "metadata"),   // Alibaba Cloud, ECS instance metadata
	r("100.64.0.0/10", "shared"),          // RFC 6598: carrier-grade NAT, tailnets
	r("127.0.0.0/8", "loopback"),          // RFC 1122 §3.2.1.3
	r("168.63.129.16/32", "metadata"),     // Azure, the wire server
	r("169.254.169.254/32", "metadata"),   // AWS, Google, Azure and most others
	r("169.254.169.253/32", "metadata"),   // AWS, the VPC's resolver
	r("169.254.170.2/32", "metadata"),     // AWS, credentials of ECS tasks
	r("169.254.170.23/32", "metadata"),    // AWS, credentials of EKS pods
	r("169.254.0.0/16", "link-local"),     // RFC 3927
	r("172.16.0.0/12", "private"),         // RFC 1918
	r("192.0.0.192/32", "metadata"),       // Oracle Cloud, the older address
	r("192.0.0.0/24", "protocol"),         // RFC 6890 §2.1, with RFC 7335, 7600, 7723, 8155, 8880
	r("192.0.2.0/24", "documentation"),    // RFC 5737
	r("192.31.196.0/24", "as112"),         // RFC 7535
	r("192.52.193.0/24", "amt"),           // RFC 7450
	r("192.88.99.0/24", "relay"),          // RFC 7526: 6to4 relays, deprecated; RFC 6751
	r("192.168.0.0/16", "private"),        // RFC 1918
	r("192.175.48.0/24", "as112"),         // RFC 7534
	r("198.18.0.0/15", "benchmarking"),    // RFC 2544; the sandbox's own handles lie here
	r("198.51.100.0/24", "documentation"), // RFC 5737
	r("203.0.113.0/24", "documentation"),  // RFC 5737
	r("224.0.0.0/4", "multicast"),         // RFC 5771
	r("255.255.255.255/32", "broadcast"),  // RFC 919 §7
	r("240.0.0.0/4", "reserved"),          // RFC 1112 §4
}

// v6 is the IANA IPv6 Special-Purpose Address Registry, the same way. Outside of
// 2000::/3, the only part given out as global unicast (IANA IPv6 address space
// registry), everything is special.
var v6 = []row{
	r("::1/128", "loopback"),            // RFC 4291 §2.5.3
	r("::/128", "unspecified"),          // RFC 4291 §2.5.2
	r("64:ff9b::/96", ""),               // RFC 6052: as public as the address within
	r("64:ff9b:1::/48", "nat64-local"),  // RFC 8215
	r("100::/64", "discard"),            // RFC 6666
	r("100:0:0:1::/64", "dummy"),        // RFC 9780
	r("2001::/32", "teredo"),            // RFC 4380
	r("2001:2::/48", "benchmarking"),    // RFC 5180
	r("2001:3::/32", "amt"),             // RFC 7450
	r("2001:4:112::/48", "as112"),       // RFC 7535
	r("2001:10::/28", "orchid"),         // RFC 4843, deprecated
	r("2001:20::/28", "orchid"),         // RFC 7343
	r("2001:30::/28", "drone-tags"),     // RFC 9374
	r("2001::/23", "protocol"),          // RFC 2928, with RFC 7723, 8155, 9665
	r("2001:db8::/32", "documentation"), // RFC 3849
	r("2002::/16", "6to4"),              // RFC 3056
	r("2620:4f:8000::/48", "as112"),     // RFC 7534
	r("3fff::/20", "documentation"),     // RFC 9637
	r("2000::/3", ""),                   // RFC 4291 §2.4: global unicast
	r("5f00::/16", "segment-routing"),   // RFC 9602
	r("fd00:ec2::254/128", "metadata"),  // AWS
	r("fd00:ec2::253/128", "metadata"),  // AWS, the VPC's resolver
	r("fd00:ec2::23/128", "metadata"),   // AWS, credentials of EKS pods
	r("fd20:ce::254/128", "metadata"),   // Google Cloud
	r("fc00::/7", "unique-local"),       // RFC 4193
	r("fe80::/10", "link-local"),        // RFC 4291 §2.5.6
	r("fec0::/10", "site-local"),        // RFC 3879, deprecated
	r("ff00::/8", "multicast"),          // RFC 4291 §2.7
	r("::/0", "reserved"),               // RFC 4291 §2.4; compatible and translated IPv4 too
}
