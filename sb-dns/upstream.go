package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"sb/lib/reason"
	"sb/lib/rule"
	"sb/lib/wire"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	lookTime = 8 * time.Second // for the host's resolver to answer
	// The resolver's interface does not tell how long an answer is good for. A
	// name is asked for again after keepFound, one that failed after keepFailed.
	keepFound  = 30 * time.Second
	keepFailed = 3 * time.Second
	// Either, where the guest made the name up: each question tells its zone that
	// the guest wanted it just now.
	keepBudgeted = time.Minute
	maxLooks     = 64   // questions to the resolver at a time
	maxKept      = 4096 // answers
)

// upstream is the host's own resolver: its hosts file, its nameservers, its VPN.
type upstream struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error) // to a nameserver
	report func(wire.Exchange)
	budget budget
	slots  chan struct{}

	mu   sync.Mutex
	kept map[look]*found
}

// look is what is asked for: TypeA stands for the addresses of both families.
type look struct {
	name rule.Name
	typ  dnsmessage.Type
}

// found is what is known, or being asked.
type found struct {
	budgeted bool          // it counts against the budget of made-up names
	done     chan struct{} // closed when the fields below are set
	addrs    []netip.Addr
	records  []record
	why      reason.Code // allow-rule if there is something
	until    time.Time   // by the clock that stops while the host sleeps
	wall     time.Time   // by the one that may be set
}

func newUpstream(report func(wire.Exchange)) *upstream {
	var d net.Dialer
	return &upstream{dial: d.DialContext, report: report, slots: make(chan struct{}, maxLooks), kept: map[look]*found{}}
}

// resolve answers the gate: where is a name now?
func (s *server) resolve(r wire.Resolve) {
	out := wire.Resolved{ID: r.ID, Reason: reason.BadName}
	if name, err := rule.ParseName(r.Name); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		var f *found
		if f, out.Reason = s.upstream.find(ctx, look{name, dnsmessage.TypeA}, s.rules.Load().Budgeted(name)); f != nil {
			out.Addrs = f.addrs
			out.TTL = uint32(keepFound / time.Second)
		}
	}
	s.send(out)
}

// find returns what the resolver knows, asked once for all who want it at a time.
// budgeted: each time that it is asked for counts against the budget of made-up
// names. There is something only with the reason allow-rule.
func (u *upstream) find(ctx context.Context, l look, budgeted bool) (*found, reason.Code) {
	u.mu.Lock()
	f := u.kept[l]
	if f == nil || f.over(time.Now()) {
		if budgeted && !u.budget.take(l.name, f != nil, time.Now()) {
			u.mu.Unlock()
			return nil, reason.ResolveBudget
		}
		f = &found{budgeted: budgeted, done: make(chan struct{})}
		u.keep(l, f)
		go u.look(l, f)
	}
	u.mu.Unlock()
	select {
	case <-f.done:
		if f.why != reason.AllowRule {
			return nil, f.why
		}
		return f, f.why
	case <-ctx.Done():
		return nil, reason.NoAnswer
	}
}

// lifetime is how long what the resolver said is good for.
func (f *found) lifetime(ok bool) time.Duration {
	switch {
	case f.budgeted:
		return keepBudgeted
	case ok:
		return keepFound
	}
	return keepFailed
}

// lasts sets until when an answer is good.
func (f *found) lasts(d time.Duration) {
	f.until = time.Now().Add(d)
	f.wall = f.until.Round(0)
}

// over reports whether an answer is too old, by either clock. One that is awaited
// never is.
func (f *found) over(now time.Time) bool {
	select {
	case <-f.done:
		return now.After(f.until) || now.Round(0).After(f.wall)
	default:
		return false
	}
}

// keep remembers an answer and forgets old ones where there are too many; the
// caller holds mu.
func (u *upstream) keep(l look, f *found) {
	if len(u.kept) >= maxKept {
		now := time.Now()
		for n, old := range u.kept {
			if old.over(now) {
				delete(u.kept, n)
			}
		}
		for n := range u.kept {
			if len(u.kept) < maxKept {
				break
			}
			delete(u.kept, n)
		}
	}
	u.kept[l] = f
}

// look asks the resolver and sets what was found.
func (u *upstream) look(l look, f *found) {
	defer close(f.done)
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	f.why = reason.NoAnswer
	f.lasts(keepFailed)
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	case <-ctx.Done():
		return
	}
	began := time.Now()
	var err error
	if l.typ == dnsmessage.TypeA {
		f.addrs, err = u.addresses(ctx, l.name)
		f.addrs = f.addrs[:min(len(f.addrs), wire.MaxAddrs)]
	} else {
		f.records, err = lookOther(ctx, u.resolver(l.name), l)
	}
	f.why = lookReason(err)
	f.lasts(f.lifetime(err == nil))
	if !ownResolver {
		u.report(wire.Exchange{Name: l.name.String(), Server: "system", Millis: time.Since(began).Milliseconds(), Reason: exchanged(err == nil)})
	}
}

// addresses asks for a name as it is: the final dot says that no search list is
// to be tried. With it Go's resolver misses a name of one label in the hosts file.
func (u *upstream) addresses(ctx context.Context, name rule.Name) ([]netip.Addr, error) {
	if ownResolver && !strings.Contains(name.String(), ".") {
		if addrs, err := hostsFile().LookupNetIP(ctx, "ip", name.String()); err == nil {
			return addrs, nil
		}
	}
	return u.resolver(name).LookupNetIP(ctx, "ip", name.String()+".")
}

// hostsFile is the host's resolver without its nameservers.
func hostsFile() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no nameserver is asked")
	}}
}

func lookReason(err error) reason.Code {
	var e *net.DNSError
	switch {
	case err == nil:
		return reason.AllowRule
	case errors.As(err, &e) && e.IsNotFound:
		return reason.NoSuchName
	}
	return reason.NoAnswer
}

// resolver is the host's, with every conversation counted.
func (u *upstream) resolver(name rule.Name) *net.Resolver {
	return &net.Resolver{PreferGo: ownResolver, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		x := wire.Exchange{Name: name.String(), Server: address}
		began := time.Now()
		c, err := u.dial(ctx, network, address)
		if err != nil {
			x.Millis, x.Reason = time.Since(began).Milliseconds(), reason.NoAnswer
			u.report(x)
			return nil, err
		}
		counted := &counted{Conn: c, report: u.report, x: x, began: began}
		if p, ok := c.(net.PacketConn); ok {
			return packets{counted, p}, nil // the resolver tells UDP by this
		}
		return counted, nil
	}}
}
