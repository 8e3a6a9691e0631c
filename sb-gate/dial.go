package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"sb/lib/audit"
	"sb/lib/reason"
	"sb/lib/rule"
)

// headStart is how long an address is tried alone before the next one is tried
// too (RFC 8305, section 5).
const headStart = 250 * time.Millisecond

// maxTries bounds the addresses of a name that are tried for one flow.
const maxTries = 4

// places returns the addresses to dial for a target, those that the rules and
// the address classes let it reach; if none, the refusal of the first.
func (g *gate) places(ctx context.Context, to target, p rule.Proto) ([]netip.AddrPort, netip.AddrPort, rule.Verdict) {
	port := to.addr.Port()
	if to.name == (rule.Name{}) {
		return []netip.AddrPort{to.addr}, netip.AddrPort{}, rule.Verdict{}
	}
	addrs, why := loopback, reason.AllowRule
	if !to.name.IsHost() {
		addrs, why = g.dns.resolve(ctx, to.name)
	}
	if why != reason.AllowRule {
		return nil, to.addr, rule.Verdict{Reason: why}
	}
	var good []netip.AddrPort
	var bad rule.Verdict
	var at netip.AddrPort
	for _, a := range addrs {
		a = a.Unmap()
		v := g.rules().Reach(to.name, a, g.hosts.class(a), p, port)
		switch {
		case v.Allow:
			good = append(good, netip.AddrPortFrom(a, port))
		case bad.Reason == "":
			bad, at = v, netip.AddrPortFrom(a, port)
		}
	}
	return good, at, bad
}

// loopback is where host.sb.internal is.
var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}

// connect opens a TCP connection to the first place that answers. Each try that
// came to nothing is a line of the log, as it left the host too.
func (g *gate) connect(ctx context.Context, to target, places []netip.AddrPort) (*net.TCPConn, reason.Code) {
	places = places[:min(len(places), maxTries)]
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	type result struct {
		at   netip.AddrPort
		conn *net.TCPConn
		why  reason.Code
	}
	results := make(chan result, len(places))
	try := func(at netip.AddrPort) {
		conn, why := g.dialOne(ctx, at)
		results <- result{at, conn, why}
	}
	started, ended := 1, 0
	go try(places[0])
	var won *net.TCPConn
	why := reason.ConnectFailed
	for next := time.NewTimer(headStart); ended < started; {
		select {
		case r := <-results:
			ended++
			switch {
			case r.why == "" && won == nil:
				won = r.conn
				cancel()
			case r.why == "":
				g.tried(to, r.at, reason.ConnectFailed)
				closeNow(r.conn)
			default:
				why = r.why
				g.tried(to, r.at, r.why)
			}
			if won == nil && started < len(places) {
				go try(places[started])
				started++
			}
		case <-next.C:
			if won == nil && started < len(places) {
				go try(places[started])
				started++
				next.Reset(headStart)
			}
		}
	}
	if won != nil {
		return won, ""
	}
	return nil, why
}

// tried writes the line of a dial that came to nothing.
func (g *gate) tried(to target, at netip.AddrPort, why reason.Code) {
	g.log.Record(audit.Line{Verdict: audit.Dial, Gate: audit.TCP, Name: to.name.String(), Address: at.String(), Reason: why,
		Words: []audit.Word{{Key: "by", Value: "guest"}}})
}

// dialOne connects to one address. What the socket is connected to is compared
// with it once more, below everything that could have changed it.
func (g *gate) dialOne(ctx context.Context, at netip.AddrPort) (*net.TCPConn, reason.Code) {
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if got, err := netip.ParseAddrPort(address); err != nil || got != at {
			return errors.New("another address than the one that was judged")
		}
		return nil
	}}
	c, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, dialReason(err)
	}
	return c.(*net.TCPConn), ""
}

func dialReason(err error) reason.Code {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return reason.ConnectRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return reason.ConnectUnreachable
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return reason.DescriptorsOut
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return reason.ConnectTimeout
	}
	return reason.ConnectFailed
}

// closeNow ends a connection with a reset: nothing that the kernel still holds
// goes out.
func closeNow(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
