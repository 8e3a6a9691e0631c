package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/wire"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// The gateway's two services (IANA).
const (
	portDNS   = 53
	portClock = 123

	dnsAnswerTime = 5 * time.Second // what a resolver in the guest waits
	dnsIdleTime   = 5 * time.Second
)

// serveDNS passes the guest's questions over UDP to sb-dns; those over TCP come
// to handleDNS. The gate parses none of them.
func (g *gate) serveDNS() error {
	at := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(g.net.Gateway().As4()), Port: portDNS}
	var wq waiter.Queue
	ep, terr := g.stack.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if terr != nil {
		return fmt.Errorf("serve DNS on the gateway: %s", terr)
	}
	conn := gonet.NewUDPConn(&wq, ep)
	g.served = append(g.served, conn)
	if terr := ep.Bind(at); terr != nil {
		return fmt.Errorf("serve DNS on the gateway: %s", terr)
	}
	lost := &ep.Stats().(*tcpip.TransportEndpointStats).ReceiveErrors.ReceiveBufferOverflow
	go g.dnsUDP(conn, lost)
	return nil
}

// dnsUDP answers questions; lost counts those that came too fast to be read.
func (g *gate) dnsUDP(conn net.PacketConn, lost *tcpip.StatCounter) {
	buf := make([]byte, wire.MaxMessage+1)
	told := uint64(0)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if now := lost.Value(); now > told {
			g.log.Fold(audit.Line{Verdict: audit.Deny, Gate: audit.DNS, Reason: reason.QueryBudget, Words: []audit.Word{audit.Int("n", int64(now-told))}})
			told = now
		}
		if n > wire.MaxMessage {
			g.denyQuery(reason.DNSMalformed)
			continue
		}
		q := wire.Query{Message: append([]byte(nil), buf[:n]...)}
		if _, ok := g.dns.query(q, func(answer []byte) { conn.WriteTo(answer, from) }); !ok {
			g.denyQuery(reason.QueryBudget)
		}
	}
}

func (g *gate) denyQuery(why reason.Code) {
	g.log.Fold(audit.Line{Verdict: audit.Deny, Gate: audit.DNS, Reason: why})
}

// handleDNS is called for each SYN to the gateway's DNS.
func (g *gate) handleDNS(r *tcp.ForwarderRequest) {
	if why := g.flows.takeOne(&g.flows.dns, maxDNSConns, reason.QueryBudget); why != "" {
		g.denyQuery(why)
		r.Complete(true)
		return
	}
	defer g.flows.free(&g.flows.dns)
	if c := g.shake(r, false); c != nil {
		stop := context.AfterFunc(g.ctx, c.reset)
		g.dnsConn(c)
		stop()
		c.part()
	}
}

// dnsConn answers questions one after the other (RFC 7766: a length of two
// bytes before each message).
func (g *gate) dnsConn(c net.Conn) {
	for {
		c.SetDeadline(time.Now().Add(dnsIdleTime))
		var head [2]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(head[:]))
		if n > wire.MaxMessage {
			g.denyQuery(reason.DNSMalformed)
			return
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(c, msg); err != nil {
			return
		}
		got := make(chan []byte, 1)
		id, ok := g.dns.query(wire.Query{Message: msg, Stream: true}, func(b []byte) { got <- b })
		if !ok {
			g.denyQuery(reason.QueryBudget)
			return
		}
		select {
		case b := <-got:
			if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
				return
			}
		case <-time.After(dnsAnswerTime):
			g.dns.forget(id)
			return
		}
	}
}

// serveClock answers the guest's clock (RFC 4330, SNTP): the host's time, which
// leaves nothing to ask outside.
func (g *gate) serveClock() error {
	at := tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom4(g.net.Gateway().As4()), Port: portClock}
	conn, err := gonet.DialUDP(g.stack, &at, nil, ipv4.ProtocolNumber)
	if err != nil {
		return fmt.Errorf("serve the clock on the gateway: %w", err)
	}
	g.served = append(g.served, conn)
	go func() {
		buf := make([]byte, 128)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := clockAnswer(buf[:n], time.Now()); answer != nil {
				conn.WriteTo(answer, from)
			}
		}
	}()
	return nil
}

// clockAnswer answers a client's packet (mode 3), nil for anything else.
func clockAnswer(q []byte, now time.Time) []byte {
	const size, modeClient, modeServer, stratum = 48, 3, 4, 3
	if len(q) < size || q[0]&7 != modeClient {
		return nil
	}
	a := make([]byte, size)
	a[0] = q[0]&0x38 | modeServer // the client's version
	a[1] = stratum
	a[2] = q[2]
	a[3] = 0xec // precision, 2^-20 s
	copy(a[12:], "SB\x00\x00")
	stamp(a[16:], now)
	copy(a[24:32], q[40:48]) // the client's transmit time
	stamp(a[32:], now)
	stamp(a[40:], now)
	return a
}

// stamp writes an NTP time: seconds since 1900 and a fraction.
func stamp(b []byte, t time.Time) {
	const since1900 = 2208988800
	binary.BigEndian.PutUint32(b, uint32(t.Unix()+since1900))
	binary.BigEndian.PutUint32(b[4:], uint32(uint64(t.Nanosecond())<<32/1e9))
}
