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

// place is an address that a target leads to, and what the rules say of it.
type place struct {
	at      netip.AddrPort
	verdict rule.Verdict
}

// places returns the addresses to dial for a target, those that the rules and
// the address classes let it reach; if none, the first that they do not.
func (g *gate) places(ctx context.Context, to target, p rule.Proto) (good []place, bad place) {
	if to.name == (rule.Name{}) {
		v := g.rules().DialAddr(to.addr.Addr(), p, to.addr.Port())
		if !v.Allow {
			return nil, place{to.addr, v}
		}
		return []place{{to.addr, v}}, place{}
	}
	addrs, why := loopback, reason.AllowRule
	if !to.name.IsHost() {
		addrs, why = g.dns.resolve(ctx, to.name)
	}
	if why != reason.AllowRule {
		return nil, place{to.addr, rule.Verdict{Reason: why}}
	}
	for _, a := range addrs {
		a = a.Unmap()
		at := place{netip.AddrPortFrom(a, to.addr.Port()), g.rules().Reach(to.name, a, g.hosts.class(a), p, to.addr.Port())}
		switch {
		case at.verdict.Allow:
			good = append(good, at)
		case bad.verdict.Reason == "":
			bad = at
		}
	}
	return good, bad
}

// loopback is where host.sb.internal is.
var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}

// try is the outcome of one connection attempt.
type try struct {
	place
	conn *outerConn
	why  reason.Code // "" if there is a conn
}

// connect opens a TCP connection to the first place that answers, and says what
// the rules say of that one. Each try that came to nothing is a line of the log,
// as it left the host too.
func (g *gate) connect(to target, places []place) (*outerConn, rule.Verdict) {
	places = places[:min(len(places), maxTries)]
	ctx, cancel := context.WithTimeout(g.ctx, dialTime)
	defer cancel()
	if len(places) == 1 {
		only := g.dialOne(ctx, places[0])
		if only.conn == nil {
			g.tried(to, only)
		}
		return only.conn, only.verdict
	}
	results := make(chan try, len(places))
	started, ended := 0, 0
	start := func() {
		if started < len(places) {
			at := places[started]
			started++
			go func() { results <- g.dialOne(ctx, at) }()
		}
	}
	start()
	next := time.NewTicker(headStart)
	defer next.Stop()
	var won try
	for ended < started {
		select {
		case <-next.C:
			if won.conn == nil {
				start()
			}
		case r := <-results:
			ended++
			if r.conn != nil && won.conn == nil {
				won = r
				cancel()
				continue
			}
			if r.conn != nil { // a second one, too late
				closeNow(r.conn.conn)
				r.why = reason.ConnectFailed
			}
			g.tried(to, r)
			if won.conn == nil {
				start()
			}
		}
	}
	return won.conn, won.verdict
}

// tried writes the line of a dial that came to nothing.
func (g *gate) tried(to target, r try) {
	g.log.Record(audit.Line{Verdict: audit.Dial, Gate: audit.TCP, Name: to.name.String(), Address: r.at.String(), Reason: r.why,
		Words: []audit.Word{{Key: "by", Value: "guest"}}})
}

// dialOne connects to one address. What the socket is connected to is compared
// with it once more, below everything that could have changed it.
func (g *gate) dialOne(ctx context.Context, to place) try {
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, raw syscall.RawConn) error {
		if got, err := netip.ParseAddrPort(address); err != nil || got != to.at {
			return errors.New("another address than the one that was judged")
		}
		return resetOnClose(raw)
	}}
	c, err := d.DialContext(ctx, "tcp", to.at.String())
	if err != nil {
		return try{place: to, why: dialReason(err)}
	}
	conn, err := newOuterConn(c.(*net.TCPConn))
	if err != nil {
		c.Close()
		return try{place: to, why: reason.ConnectFailed}
	}
	return try{place: to, conn: conn}
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
