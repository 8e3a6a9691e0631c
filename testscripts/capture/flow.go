package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// Flow is one 5-tuple, as it was seen on the device. Of an ICMP echo, the local
// port is its identifier.
type Flow struct {
	Proto         string // tcp, udp or icmp
	Local, Remote netip.AddrPort
	Began         time.Time
	LastUp        time.Time // when a byte of payload last went out, for the first time

	// Payload. Up is what left, each byte counted once. Down is what this side
	// has acknowledged, or of datagrams what came.
	Up, Down int64

	Open  bool // TCP: the other side has accepted it
	FIN   bool // TCP: both sides have said their end, and each has acknowledged the other's
	RST   bool // TCP: one side has cut it
	Stray bool // its beginning was not seen, or the other side began it

	out, in half
}

func (f Flow) String() string {
	end := ""
	for _, e := range []struct {
		is   bool
		word string
	}{{f.Open, " open"}, {f.FIN, " fin"}, {f.RST, " rst"}, {f.Stray, " stray"}} {
		if e.is {
			end += e.word
		}
	}
	return fmt.Sprintf("%s %s > %s up=%d down=%d%s", f.Proto, f.Local, f.Remote, f.Up, f.Down, end)
}

// Ended reports whether a TCP flow is over. Others never are.
func (f Flow) Ended() bool { return f.FIN || f.RST }

// half is one direction of a TCP flow, in numbers that begin at its SYN.
type half struct {
	known bool
	base  uint32 // the sequence number of the SYN
	top   int64  // behind the last byte that was sent
	fin   int64  // where the FIN stands; 0: none
	acked int64  // what the other side has acknowledged
}

// at is a sequence number as one that does not wrap.
func (h *half) at(seq uint32, near int64) int64 {
	return near + int64(int32(seq-(h.base+uint32(near))))
}

type key struct {
	proto         byte
	local, remote netip.AddrPort
}

// fragment is what the parts of a datagram have in common.
type fragment struct {
	src, dst netip.Addr
	id       uint16
	proto    byte
}

const (
	etherLen = 14
	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd
	typeARP  = 0x0806
	icmp     = 1
	tcp      = 6
	udp      = 17
	dnsPort  = 53

	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

func native(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// packet accounts for one: b is what is kept of its size bytes.
func (c *Capture) packet(b []byte, size int, out bool, at time.Time) {
	way := "in"
	if out {
		way = "out"
	}
	if len(b) < etherLen {
		c.other[way+" runt"]++
		return
	}
	switch typ := binary.BigEndian.Uint16(b[12:]); {
	case typ == typeARP:
		c.other[way+" arp"]++
	case typ == typeIPv4 && len(b) >= etherLen+20 && c.ipv4(b[etherLen:], out, at):
	case typ == typeIPv6 && len(b) >= etherLen+40:
		c.other[fmt.Sprintf("%s ipv6 %d to %s", way, b[etherLen+6], netip.AddrFrom16([16]byte(b[etherLen+24:])))]++
	case typ == typeIPv4 && len(b) >= etherLen+20:
		ip := b[etherLen:]
		c.other[fmt.Sprintf("%s ipv4 %d %s to %s", way, ip[9], netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:])))]++
	default:
		c.other[fmt.Sprintf("%s ethertype %#04x, %d bytes", way, typ, size)]++
	}
}

// ipv4 accounts for a packet of a flow. False: it is of none.
func (c *Capture) ipv4(ip []byte, out bool, at time.Time) bool {
	head := int(ip[0]&15) * 4
	total := int(binary.BigEndian.Uint16(ip[2:]))
	offset := binary.BigEndian.Uint16(ip[6:])
	src, dst := netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	proto := ip[9]
	if head < 20 || total < head || len(ip) < head+8 {
		return false
	}
	part := fragment{src, dst, binary.BigEndian.Uint16(ip[4:]), proto}
	if offset&0x1fff != 0 {
		return c.parts[part] // counted with the first, by the length that it tells
	}
	if offset&0x2000 != 0 {
		c.parts[part] = true
	}
	body, n := ip[head:], total-head
	k := key{proto: proto, local: netip.AddrPortFrom(src, 0), remote: netip.AddrPortFrom(dst, 0)}
	switch {
	case proto == icmp && (body[0] == 8 && out || body[0] == 0 && !out):
		k.local = netip.AddrPortFrom(src, binary.BigEndian.Uint16(body[4:]))
		if !out {
			k.local, k.remote = netip.AddrPortFrom(dst, k.local.Port()), netip.AddrPortFrom(src, 0)
		}
		if f := c.flows[k]; out && f != nil && f.Up > 0 {
			delete(c.flows, k) // each request is one, whatever its identifier
		}
		c.flow(k, out, at).datagram(n-8, out, at)
		return true
	case proto == tcp && len(body) >= 20, proto == udp:
		k.local, k.remote = netip.AddrPortFrom(src, binary.BigEndian.Uint16(body)), netip.AddrPortFrom(dst, binary.BigEndian.Uint16(body[2:]))
		if !out {
			k.local, k.remote = k.remote, k.local
		}
	default:
		return false
	}
	if proto == udp {
		if f := c.flows[k]; out && k.remote.Port() == dnsPort && f != nil && f.Down > 0 {
			delete(c.flows, k) // the same port again, for the next question
		}
		c.flow(k, out, at).datagram(int(binary.BigEndian.Uint16(body[4:]))-8, out, at)
		return true
	}
	f := c.flow(k, out, at)
	if body[13]&(flagSYN|flagACK) == flagSYN && out && f.Ended() {
		// The same ports again, later: another flow.
		delete(c.flows, k)
		f = c.flow(k, out, at)
	}
	f.segment(body, n-int(body[12]>>4)*4, out, at)
	return true
}

// flow is that of a key; who speaks first began it.
func (c *Capture) flow(k key, out bool, at time.Time) *Flow {
	f := c.flows[k]
	if f == nil {
		f = &Flow{Proto: map[byte]string{icmp: "icmp", tcp: "tcp", udp: "udp"}[k.proto], Local: k.local, Remote: k.remote, Began: at, Stray: !out}
		c.flows[k] = f
		c.order = append(c.order, f)
	}
	return f
}

func (f *Flow) datagram(n int, out bool, at time.Time) {
	if out {
		f.Up += int64(n)
		f.LastUp = at
	} else {
		f.Down += int64(n)
	}
}

// segment accounts for a TCP segment with n bytes of payload.
func (f *Flow) segment(b []byte, n int, out bool, at time.Time) {
	seq, ack, flags := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), b[13]
	from, to := &f.out, &f.in
	if !out {
		from, to = to, from
	}
	if !from.known && flags&flagRST == 0 {
		from.known, from.base = true, seq
		if flags&flagSYN == 0 {
			f.Stray, from.base, from.top = true, seq-1, 1
		}
	}
	if from.known && flags&flagRST == 0 {
		start := from.at(seq, from.top)
		if flags&flagSYN != 0 {
			start++
			f.Open = f.Open || !out && flags&flagACK != 0
		}
		// Without payload it may stand behind a FIN, which is no byte.
		if end := start + int64(n); end > from.top && (n > 0 || flags&flagSYN != 0) {
			if n > 0 && out {
				f.LastUp = at
			}
			from.top = end
		}
		if flags&flagFIN != 0 {
			from.fin = start + int64(n)
		}
	}
	if to.known && flags&flagACK != 0 {
		to.acked = max(to.acked, to.at(ack, to.top))
	}
	f.RST = f.RST || flags&flagRST != 0 && !f.FIN
	f.count()
}

// count sets what follows from both halves.
func (f *Flow) count() {
	f.Up = max(0, f.out.top-1)
	f.Down = max(0, f.in.acked-1)
	if f.in.fin > 0 && f.in.acked > f.in.fin {
		f.Down = f.in.fin - 1
	}
	f.FIN = !f.RST && f.out.fin > 0 && f.in.fin > 0 && f.out.acked > f.out.fin && f.in.acked > f.in.fin
}
